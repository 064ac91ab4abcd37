/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mailbox.c - letters in boxes: put in, taken out and read, withdrawn.
 *
 * Locks: a rank holds the mutex of one box at a time, its own or one that it puts a letter into.
 * While bytes are copied none is held; the count `copying` of the sender's box says so, and a
 * sender that gives up waits until it is 0, for its buffers are the caller's from then on.
 */
#include "comm_thread.h"

#include <string.h>

void tess__box_wake(tess__box *box)
{
    pthread_mutex_lock(&box->mutex);
    pthread_cond_broadcast(&box->changed);
    pthread_mutex_unlock(&box->mutex);
}

void tess__box_put(tess__box *box, tess__letter *l)
{
    pthread_mutex_lock(&box->mutex);
    *(box->last ? &box->last->next : &box->first) = l;
    box->last = l;
    pthread_cond_broadcast(&box->changed);
    pthread_mutex_unlock(&box->mutex);
}

/* Copies a letter that was taken; no mutex is held. */
static void read_letter(tess__letter *l, tess__letter *expected)
{
    tess__box *owner = l->owner;
    if (l->bytes == expected->message->bytes)
        memcpy(expected->message->data, l->message->data, (size_t)l->bytes);
    expected->bytes = l->bytes;
    expected->leaves = l->leaves;
    expected->message->done = 1;
    pthread_mutex_lock(&owner->mutex);
    l->done = 1;
    atomic_fetch_sub(&owner->copying, 1);
    pthread_cond_broadcast(&owner->changed);
    pthread_mutex_unlock(&owner->mutex);
}

int tess__box_take(tess__box *mine)
{
    tess__letter *before = NULL;
    for (tess__letter *l = mine->first; l; before = l, l = l->next) {
        tess__letter **at = &mine->expected, *e;
        while ((e = *at) && (e->tag != l->tag || e->from != l->from || e->number != l->number))
            at = &e->next;
        if (!e)
            continue;
        *at = e->next;
        *(before ? &before->next : &mine->first) = l->next;
        if (mine->last == l)
            mine->last = before;
        atomic_fetch_add(&l->owner->copying, 1);
        pthread_mutex_unlock(&mine->mutex);
        read_letter(l, e);
        pthread_mutex_lock(&mine->mutex);
        return 1;
    }
    return 0;
}

void tess__box_withdraw(tess__world *world, int place, int64_t tag)
{
    tess__box *mine = &world->boxes[place];
    for (int p = 0; p < world->ranks; p++) {
        tess__box *box = &world->boxes[p];
        pthread_mutex_lock(&box->mutex);
        tess__letter *kept = NULL;
        for (tess__letter *l = box->first, *next; l; l = next) {
            next = l->next;
            if (l->owner == mine && (tag < 0 || l->tag == tag)) {
                *(kept ? &kept->next : &box->first) = next;
            } else {
                kept = l;
            }
        }
        box->last = kept;
        pthread_mutex_unlock(&box->mutex);
    }
    for (tess__letter **at = &mine->expected; *at;) {
        if (tag < 0 || (*at)->tag == tag)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    pthread_mutex_lock(&mine->mutex);
    while (atomic_load(&mine->copying) > 0)
        pthread_cond_wait(&mine->changed, &mine->mutex);
    pthread_mutex_unlock(&mine->mutex);
}
