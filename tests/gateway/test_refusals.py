"""Who may not, may not; what is malformed is refused; and the gateway goes on."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echannel_ray import errors
from echannel_ray.gateway import commands, service
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.gateway.client_connection import ClientConnection
from echannel_ray.gateway.identity import Identity
from echannel_ray.gateway.rights import Rights
from echannel_ray.gateway.server import Gateway
from echannel_ray.logs.entries import Chosen, Missing, NotStaged, WriteAttempt
from echannel_ray.logs.files import Files
from tests.gateway.rows import ON_DISK, SCHEMA, batch_of, batches_of, numbers_in

PLACE = WriteAttempt("w", 0, 0)
CALLS = {
    "open": lambda client: client.channel("rows"),
    "create": lambda client: client.channel("rows", SCHEMA),
    "publish": lambda client: client.publish("rows", [batch_of(0, 1)]),
    "stage": lambda client: client.stage("rows", PLACE, [batch_of(0, 1)]),
    "stage_files": lambda client: client.stage_files("rows", PLACE, Files(("/nowhere.parquet",), (1,))),
    "commit": lambda client: client.commit("rows", "w", []),
    "abort": lambda client: client.abort("rows", "w"),
    "is_committed": lambda client: client.is_committed("rows", "w"),
    "staged_bytes": lambda client: client.staged_bytes("rows"),
    "offsets": lambda client: client.offsets("rows"),
    "read": lambda client: list(client.read("rows", "log", 0, 1)),
    "group": lambda client: client.group("rows", "g", "latest", 1),
    "acknowledge": lambda client: client.acknowledge("rows", "g", {}, 1),
}
READING = {"offsets", "read", "group", "acknowledge"}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_without_the_token_nothing_is_answered(client, call):
    endpoint = dataclasses.replace(client.endpoint, token=Identity.generate([]).token)
    with GatewayClient(endpoint, patience_seconds=0) as stranger, pytest.raises(errors.NotAuthorised, match="token"):
        call(stranger)


@pytest.mark.parametrize("headers", [[], [b"Bearer "], [b"Basic x"], [b"TOKEN"], [b"Bearer TOKEN", b"Bearer TOKEN"]])
def test_other_authorisations_are_refused(client, headers):
    token = client.endpoint.token.encode()
    options = fl.FlightCallOptions(headers=[(b"authorization", each.replace(b"TOKEN", token)) for each in headers])
    command = commands.encode(commands.Offsets("rows"))
    with ClientConnection(client.endpoint).call() as caller, pytest.raises(fl.FlightUnauthenticatedError):
        list(caller.client.do_action(fl.Action(commands.ACTION, command), options))


def test_a_server_with_another_key_is_not_believed(client):
    impostor = Identity.generate(["127.0.0.1"])
    endpoint = dataclasses.replace(client.endpoint, key=impostor.certificate_der)
    with GatewayClient(endpoint, patience_seconds=60) as deceived, pytest.raises(errors.NotAuthorised, match="key"):
        deceived.channel("rows")


@pytest.mark.parametrize("name", CALLS)
def test_channels_beyond_the_patterns_are_refused(connect, name):
    granted = {"publish": ("in-*", "r?w"), "subscribe": ("out-*",)}
    with pytest.raises(errors.NotAuthorised, match="'rows'") as refused:
        CALLS[name](connect(**granted))
    assert refused.value.channel == "rows"
    usual = ["out-*"] if name in READING else ["in-*", "r?w"]
    assert refused.value.patterns == (["in-*", "out-*", "r?w"] if name == "open" else usual)


def test_reading_does_not_give_the_right_to_make_channels(connect):
    client = connect(publish=(), subscribe=("*",))
    assert client.channel("rows").schema == SCHEMA
    with pytest.raises(errors.NotAuthorised):
        client.channel("new", SCHEMA, ON_DISK)


def test_a_pattern_lets_its_channels_in(connect):
    client = connect(publish=("other", "row?"), subscribe=("*s",))
    client.publish("rows", batches_of(100))
    assert numbers_in(client, "rows") == list(range(100))


def test_errors_are_raised_again_as_what_they_were(client):
    with pytest.raises(LookupError, match="no channel 'nowhere'"):
        client.channel("nowhere")
    with pytest.raises(NotStaged):
        client.commit("rows", "w", [Chosen(0, 0, 1)])
    with pytest.raises(Missing) as missing:
        list(client.read("rows", "another log", 5, 9))
    assert (missing.value.log, missing.value.first, missing.value.next) == ("another log", 5, None)
    with pytest.raises(errors.TypeMismatch) as mismatch:
        client.channel("rows", pa.schema([("number", pa.float64())]))
    assert (mismatch.value.channel, mismatch.value.field) == ("rows", "number")
    with pytest.raises(ValueError, match="ends at 0"):
        list(client.read("rows", client.channel("rows").log, 0, 9))
    with pytest.raises(errors.TypeMismatch, match="'other' "):
        client.publish("rows", [pa.record_batch({"number": [1], "other": ["x"]})])


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"publish"}))
@pytest.mark.parametrize(
    "error",
    [
        errors.ChannelDeleted("gone", channel="rows"),
        errors.InvalidName("long " * 10_000, name="x" * 100_000),
        errors.Closed("closed", what={"not": "text"}),
        Missing("log", 3, 9),
        NotStaged("lost"),
        LookupError("nothing there"),
        TimeoutError("late"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_of_a_host_reaches_the_client(connect, error, name):
    client = connect(_Raising(error))
    with pytest.raises(type(error)) as raised:
        CALLS[name](client)
    assert type(raised.value) is type(error)
    assert str(raised.value)[:1000] == str(error)[:1000]
    facts = getattr(error, "facts", {})
    if len(str(facts)) < 1000:
        assert getattr(raised.value, "facts", {}) == facts


def test_a_host_that_breaks_is_no_secret(connect, caplog):
    client = connect(_Raising(ZeroDivisionError("by zero")))
    with pytest.raises(errors.EChannelError, match=r"the gateway failed.*by zero"):
        client.channel("rows")
    assert "ZeroDivisionError" in caplog.text


class _Raising:
    """A host that can't."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str):
        def fail(*_):
            raise self._error

        return fail


def _ask(client, kind: str, body: bytes):
    with ClientConnection(client.endpoint).call() as caller:
        return list(caller.client.do_action(fl.Action(kind, body), caller.options))


def _get(client, ticket: bytes):
    with ClientConnection(client.endpoint).call() as caller:
        return caller.client.do_get(fl.Ticket(ticket), caller.options).read_all()


def _put(client, descriptor: bytes | fl.FlightDescriptor, batch: pa.RecordBatch | None = None):
    if isinstance(descriptor, bytes):
        descriptor = fl.FlightDescriptor.for_command(descriptor)
    with ClientConnection(client.endpoint).call() as caller:
        writer, _ = caller.client.do_put(descriptor, SCHEMA, caller.options)
        try:
            writer.write_batch(batch or batch_of(0, 1))
        finally:
            writer.close()


VALID = [
    commands.Publish("rows"), commands.Stage("rows", PLACE, 0), commands.Read("rows", "log", 0, 5),
    commands.Open("rows", b"schema", {"disk": True}), commands.Commit("rows", "w", (Chosen(0, 0, 1),)),
    commands.Group("rows", "g", "latest", 1.0), commands.Acknowledge("rows", "g", {"log": 3}, 1.0),
    commands.StageFiles("rows", PLACE, ("/a.parquet",), (1,)),
]  # fmt: skip
junk = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A command with a field of another value, without it, or with one more."""
    fields = json.loads(commands.encode(draw(st.sampled_from(VALID))))
    name = draw(st.sampled_from([*fields, "more"]))
    if draw(st.booleans()):
        fields.pop(name, None)
    else:
        fields[name] = draw(junk)
    return json.dumps(fields).encode(errors="replace")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=200), mutated()))
def test_anything_may_come_and_the_gateway_goes_on(connect_once, data):
    client = connect_once
    for send in (lambda: _ask(client, commands.ACTION, data), lambda: _get(client, data), lambda: _put(client, data)):
        try:
            send()
        except (errors.EChannelError, ValueError, LookupError, Missing, NotStaged) as error:
            refusal: Exception | None = error
        else:
            refusal = None  # it may be a command still
        assert not isinstance(refusal, errors.Disconnected)
        assert "the gateway failed" not in str(refusal)
    assert client.channel("rows").schema == SCHEMA


@pytest.fixture
def connect_once(client):
    return client


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (lambda client: _ask(client, "other", b"{}"), "no action 'other'"),
        (lambda client: _ask(client, commands.ACTION, b""), "no command"),
        (lambda client: _ask(client, commands.ACTION, b"\x80\x04K\x01."), "malformed"),  # a pickle
        (lambda client: _ask(client, commands.ACTION, b"[" * 100_000), "malformed"),
        (lambda client: _ask(client, commands.ACTION, b" " * (commands.MAX_COMMAND_BYTES + 1)), "at most"),
        (lambda client: _ask(client, commands.ACTION, commands.encode(commands.Publish("rows"))), "no action"),
        (lambda client: _get(client, commands.encode(commands.Offsets("rows"))), "no batches"),
        (lambda client: _put(client, commands.encode(commands.Offsets("rows"))), "no batches"),
        (lambda client: _put(client, fl.FlightDescriptor.for_path("rows")), "no command"),
        (lambda client: client.channel("x", _Bytes(b"no schema")), "no Arrow schema"),
        (lambda client: client.stage_files("rows", PLACE, Files(("/a.parquet", "/b.parquet"), (1,))), "2 files"),
        (lambda client: client.group("rows", "g", "somewhere", 1), "malformed"),
        (lambda client: client.group("rows", "g", "latest", -1), "malformed"),
        (lambda client: client.acknowledge("rows", "g", {"log": -1}, 1), "malformed"),
        (lambda client: client.channel(""), "malformed"),
    ],
)
def test_what_is_malformed_is_refused_with_the_reason(client, send, reason):
    with pytest.raises(ValueError, match=reason):
        send(client)
    assert client.channel("rows").schema == SCHEMA


class _Bytes:
    """Bytes in the place of a schema."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def serialize(self) -> pa.Buffer:
        return pa.py_buffer(self._data)


def test_a_batch_whose_offsets_point_elsewhere_is_refused(client):
    offsets = pa.array([0, 900, 3], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    forged = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64()), texts], schema=SCHEMA)
    with pytest.raises(ValueError, match="offset"):
        _put(client, commands.encode(commands.Publish("rows")), forged)
    assert numbers_in(client, "rows") == []


def test_batches_have_a_largest_size(client, monkeypatch):
    monkeypatch.setattr(service, "MAX_BATCH_BYTES", 1000)
    with pytest.raises(ValueError, match="at most 1000"):
        _put(client, commands.encode(commands.Stage("rows", PLACE, 0)), batch_of(0, 1000))
    assert client.staged_bytes("rows") == 0


def test_a_port_that_is_taken_is_not_shared(client, host):
    with pytest.raises(OSError, match="in use"):
        Gateway(host, "default", port=client.endpoint.port).start()


def test_batches_of_one_call_have_one_schema(client):
    with pytest.raises(ValueError, match="one schema"):
        client.publish("rows", [batch_of(0, 1), pa.record_batch({"other": [1]})])


def test_a_gateway_that_is_not_there_is_said_to_be_gone():
    identity = Identity.generate(["127.0.0.1"])
    endpoint = Endpoint("127.0.0.1", 1, "default", identity.token, identity.certificate_der, 41235)
    with GatewayClient(endpoint, patience_seconds=0.2) as client:
        for call in CALLS.values():
            with pytest.raises(errors.Disconnected, match=r"127\.0\.0\.1:1 can't be reached") as gone:
                call(client)
            assert gone.value.gateway == "127.0.0.1:1"


def test_a_client_that_was_closed_says_so(client):
    client.close()
    for call in CALLS.values():
        with pytest.raises(errors.Closed):
            call(client)


@pytest.mark.parametrize("path", ["/shared/a.txt", "/elsewhere/a.parquet", "/shared/../etc/a.parquet"])
def test_files_beyond_the_patterns_are_refused(path):
    rights = Rights(("*",), ("*",), (), ("/shared/*",))
    rights.check_files(["/shared/a.parquet"])
    with pytest.raises(errors.NotAuthorised, match=r"may not hand over .* give `session.gateway"):
        rights.check_files([path])
