/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mailbox.c - mailboxes of message descriptors: post, receive, withdraw.
 *
 * Locks: a rank holds the mutex of one mailbox at a time, its own or the one that it posts to. None
 * is held while bytes are copied; `copying` of the sender's mailbox counts the copies in progress,
 * and a sender that withdraws its messages waits until it is 0, for its buffers belong to the
 * caller from then on.
 */
#include "comm_thread.h"

#include <string.h>

void tess__mailbox_wake(tess__mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->mutex);
    pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->mutex);
}

void tess__mailbox_post(tess__mailbox *mailbox, tess__descriptor *l)
{
    pthread_mutex_lock(&mailbox->mutex);
    *(mailbox->last ? &mailbox->last->next : &mailbox->first) = l;
    mailbox->last = l;
    pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->mutex);
}

/* Copies the message of a descriptor that was removed from the mailbox; no mutex is held. */
static void copy_message(tess__descriptor *l, tess__descriptor *expected)
{
    tess__mailbox *owner = l->owner;
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

int tess__mailbox_receive(tess__mailbox *mine)
{
    tess__descriptor *before = NULL;
    for (tess__descriptor *l = mine->first; l; before = l, l = l->next) {
        tess__descriptor **at = &mine->expected, *e;
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
        copy_message(l, e);
        pthread_mutex_lock(&mine->mutex);
        return 1;
    }
    return 0;
}

void tess__mailbox_withdraw(tess__world *world, int world_rank, int64_t tag)
{
    tess__mailbox *mine = &world->mailboxes[world_rank];
    for (int p = 0; p < world->ranks; p++) {
        tess__mailbox *mailbox = &world->mailboxes[p];
        pthread_mutex_lock(&mailbox->mutex);
        tess__descriptor *kept = NULL;
        for (tess__descriptor *l = mailbox->first, *next; l; l = next) {
            next = l->next;
            if (l->owner == mine && (tag < 0 || l->tag == tag)) {
                *(kept ? &kept->next : &mailbox->first) = next;
            } else {
                kept = l;
            }
        }
        mailbox->last = kept;
        pthread_mutex_unlock(&mailbox->mutex);
    }
    for (tess__descriptor **at = &mine->expected; *at;) {
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
