#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""event_file.py - `train --tensorboard`: the event file has the numbers of metrics.jsonl, once a step.

    event_file.py --tessera build/release/bin/tessera [--package]

A run ends early, loses its last checkpoint and the second half of its last record, as after a power
failure, and is resumed. The file is read by the few lines below, which share nothing with the writer;
with --package by TensorBoard itself too, whose absence is exit 77, as is a build that cannot train.
"""
import argparse
import importlib.util
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

RUN = ["--preset", "tiny", "--frames", "4", "--height", "16", "--width", "16", "--batch", "2", "--warmup", "2",
       "--validate-clips", "1", "--validate-every", "4", "--checkpoint-every", "4", "-q"]
FILE = "events.out.tfevents.tessera"
QUARTILES = ["least_noise", "second_quartile", "third_quartile", "most_noise"]


def crc32c(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + length]
        assert crc == masked(data[at:at + 8]) and masked(body) == struct.unpack_from("<I", data, at + 12 + length)[0]
        yield body
        at += 16 + length


def varint(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, value) of a protobuf message; bytes of what has a length."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def scalars(path):
    """[(step, {tag: value})] behind the version."""
    found = []
    for i, body in enumerate(records(path)):
        event = dict(fields(body))
        assert 1.6e9 < struct.unpack("<d", event[1])[0] < 4e9
        if i == 0:
            assert event[3] == b"brain.Event:2"
            continue
        values = [dict(fields(value)) for _, value in fields(event[5])]
        found.append((event[2], {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values}))
    return found


class EventFile(unittest.TestCase):
    tessera = None
    package = False

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tessera-tensorboard-")
        cls.addClassCleanup(folder.cleanup)
        cls.run_folder = pathlib.Path(folder.name) / "run"
        cls.train(*RUN, "--steps", "12", "--until", "7", "--tensorboard")
        shutil.rmtree(cls.run_folder / "checkpoints/step-000007")
        path = cls.run_folder / FILE
        path.write_bytes(path.read_bytes()[:-100])
        cls.train("--resume", "-q")

    @classmethod
    def train(cls, *options):
        subprocess.run([cls.tessera, "train", "--out", cls.run_folder, *options], check=True, stdout=subprocess.DEVNULL)

    def metrics(self):
        for line in (self.run_folder / "metrics.jsonl").read_text().splitlines():
            numbers = {k: v for k, v in json.loads(line).items() if v is not None}
            step = numbers.pop("step")
            yield step, numbers | dict(zip(QUARTILES, numbers.pop("val_buckets", [])))

    def test_the_checksum_is_that_of_iscsi(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)

    def test_every_number_is_there_once(self):
        found = scalars(self.run_folder / FILE)
        self.assertEqual([step for step, _ in found], list(range(1, 13)))
        for (step, values), (line, numbers) in zip(found, self.metrics()):
            names = {tag.split("/")[1]: value for tag, value in values.items()}
            self.assertEqual((step, names.keys()), (line, numbers.keys()))
            for name, value in numbers.items():  # a line has 9 digits
                self.assertTrue(math.isclose(names[name], value, rel_tol=2e-7), (step, name, names[name], value))

    def test_groups(self):
        tags = scalars(self.run_folder / FILE)[3][1]
        self.assertTrue({"train/loss", "time/step_ms", "sparse/density", "validation/val_loss",
                         "validation/most_noise"} <= tags.keys())

    def test_the_package_reads_it(self):
        if not self.package:
            self.skipTest("without --package")
        from tensorboard.backend.event_processing import event_accumulator
        read = event_accumulator.EventAccumulator(str(self.run_folder))
        read.Reload()
        for tag in ("train/loss", "validation/val_loss"):
            self.assertEqual([(e.step, e.value) for e in read.Scalars(tag)],
                             [(step, values[tag]) for step, values in scalars(self.run_folder / FILE) if tag in values])

    def test_a_run_without_the_option_has_no_file(self):
        other = self.run_folder.with_name("other")
        subprocess.run([self.tessera, "train", "--out", other, *RUN, "--steps", "1"], check=True, stdout=subprocess.DEVNULL)
        self.assertFalse((other / FILE).exists())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--package", action="store_true")
    args, rest = parser.parse_known_args()
    EventFile.tessera, EventFile.package = args.tessera.resolve(), args.package
    if args.package and not importlib.util.find_spec("tensorboard"):
        print("skipped: no tensorboard")
        sys.exit(77)
    if "oneDNN" not in subprocess.run([EventFile.tessera, "info"], capture_output=True, text=True).stdout:
        print("this build has no oneDNN")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
