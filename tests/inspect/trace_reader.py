"""A trace, read by protoc with Perfetto's message definitions."""
import os
import re
import subprocess

FIELD = re.compile(r'\s*(\w+)(?:: ("(?:[^"\\]|\\.)*"|\S+)| (\{))|\s*(\})')


def value_of(note):
    """Of an array: a list of the values."""
    field, values = next((k, v) for k, v in note.items() if k != "name")
    return [value_of(v) for v in values] if field == "array_values" else values[0]


def text_of(value):
    return value.strip('"').replace("\\'", "'")


def read_message(words):
    """Returns a dict of lists: a field may be there more than once."""
    message = {}
    for name, value, opens, closes in words:
        if closes:
            break
        message.setdefault(name, []).append(read_message(words) if opens else text_of(value))
    return message


def decode(trace, proto):
    """Returns the packets."""
    done = subprocess.run(
        ["protoc", f"-I{os.path.dirname(proto)}", "--decode=perfetto.protos.Trace", proto],
        input=trace, stdout=subprocess.PIPE, check=True)
    words = (m.groups() for m in FIELD.finditer(done.stdout.decode()))
    return read_message(words).get("packet", [])


class Event:
    """A track event, without the numbers that stand for names."""

    def __init__(self, packet, tracks):
        e = packet["track_event"][0]
        self.time = int(packet["timestamp"][0])
        self.track = tracks[e["track_uuid"][0]]
        self.kind = e["type"][0].removeprefix("TYPE_")
        self.name = e.get("name", [""])[0]
        self.notes = {
            n["name"][0]: value_of(n) for n in e.get("debug_annotations", [])
        }
        self.begins = e.get("flow_ids", [])
        self.ends = e.get("terminating_flow_ids", [])
        self.count = e.get("counter_value", [None])[0]


def read_trace(trace, proto):
    """Returns the names of the tracks, in their order, and the events."""
    packets = decode(trace, proto)
    tracks = {}
    for p in packets:
        for d in p.get("track_descriptor", []):
            of_kind = {**d.get("process", [{}])[0], **d.get("thread", [{}])[0], **d}
            name = next(of_kind[k][0] for k in ("thread_name", "process_name", "name") if k in of_kind)
            tracks[d["uuid"][0]] = name
    events = [Event(p, tracks) for p in packets if "track_event" in p]
    return list(tracks.values()), events
