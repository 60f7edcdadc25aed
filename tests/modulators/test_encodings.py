"""Pairs: compression and encryption, without loss, and quantisation, within its bound."""

from __future__ import annotations

import bz2
import lzma
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from echannel_ray.modulators import (
    Compress,
    Decompress,
    Decrypt,
    Dequantise,
    Encrypt,
    Quantise,
    try_out,
)
from tests.modulators.events import TRADES, Trade, at_work, prices

KEY = bytes(range(32))
METHODS = ("zlib", "lzma", "bz2")

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8")),
    st.binary(), st.binary().map(bytearray), st.dates(), st.datetimes(), st.timedeltas(),
    st.complex_numbers(allow_nan=False), st.decimals(allow_nan=False),
)  # fmt: skip
plain_data = st.recursive(
    scalars,
    lambda inside: st.one_of(
        st.lists(inside), st.lists(inside).map(tuple), st.sets(st.integers()), st.frozensets(st.text("ab")),
        st.dictionaries(st.one_of(st.text("ab"), st.integers(), st.tuples(st.integers())), inside),
    ),
    max_leaves=8,
)  # fmt: skip
numeric_arrays = arrays.arrays(
    st.one_of(
        arrays.integer_dtypes(), arrays.floating_dtypes(), arrays.boolean_dtypes(), arrays.unicode_string_dtypes()
    ),
    arrays.array_shapes(min_dims=1, min_side=0),
)


def same(one, other):
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(st.one_of(plain_data, numeric_arrays), st.sampled_from(METHODS))
def test_compressed_events_arrive_as_they_were(event, method):
    (received,) = try_out(Compress(method), [event], Decompress())
    assert same(received, event)


@given(st.one_of(plain_data, numeric_arrays))
def test_encrypted_events_arrive_as_they_were(event):
    (received,) = try_out(Encrypt(KEY), [event], Decrypt(KEY))
    assert same(received, event)


@pytest.mark.parametrize("pair", [(Compress, Decompress), (lambda: Encrypt(KEY), lambda make: Decrypt(KEY, make))])
def test_objects_travel_as_their_fields_and_are_made_again(pair):
    coding, decoding = pair
    assert try_out(coding(), TRADES, decoding(None)) == [{"symbol": "RAY", "price": 70.0}] * len(TRADES)
    assert try_out(coding(), [Trade("RAY", 1.0)], decoding(Trade)) == [Trade("RAY", 1.0)]
    assert try_out(coding(), ["no fields"], decoding(Trade)) == ["no fields"]


@pytest.mark.parametrize("method", METHODS)
def test_compression_makes_events_smaller_or_a_few_bytes_larger(method):
    (small,) = try_out(Compress(method), [{"values": [20.5] * 1000}])
    assert len(small) < 200
    (incompressible,) = try_out(Compress(method), [np.random.default_rng(1).bytes(1000)])
    assert len(incompressible) < 1010
    (fast,), (best,) = (try_out(Compress(method, level), [bytes(range(256)) * 99]) for level in (1, 9))
    assert len(best) <= len(fast)


@pytest.mark.parametrize(
    ("mark", "bomb"),
    [
        (b"\1", zlib.compress(bytes(10_000_000))),
        (b"\2", lzma.compress(bytes(10_000_000))),
        (b"\3", bz2.compress(bytes(10_000_000))),
    ],
)
def test_a_bomb_does_not_go_off(mark, bomb):
    with pytest.raises(ValueError, match="max_bytes"):
        Decompress(max_bytes=1_000_000).receive(mark + bomb)


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_damaged_events_are_refused(method, data):
    (sent,) = try_out(Compress(method), ["a long text " * 50])
    at = data.draw(st.integers(0, len(sent) - 1))
    for damaged in (sent[:at], sent[:at] + bytes([sent[at] ^ data.draw(st.integers(1, 255))]) + sent[at + 1 :]):
        try:
            (received,) = Decompress().receive(damaged)
        except ValueError:
            continue
        assert received == "a long text " * 50  # a byte that does not matter, as one of a header


def test_decoding_reads_only_what_was_encoded():
    for receive in (Decompress().receive, Decrypt(KEY).receive):
        with pytest.raises(TypeError, match="has sent"):
            receive("a text")
        for malformed in (b"", b"\4something", bytes(27), bytes(100)):
            with pytest.raises(ValueError, match=r"made by|encrypted|malformed"):
                receive(malformed)


def test_encryption_hides_and_authenticates():
    sent = try_out(Encrypt(KEY), ["a secret", "a secret"])
    assert b"secret" not in b"".join(sent)
    assert sent[0] != sent[1]
    decrypt = Decrypt(KEY)
    for event in sent:
        assert list(decrypt.receive(event)) == ["a secret"]
        for at in range(len(event)):
            with pytest.raises(ValueError, match="changed on its way"):
                decrypt.receive(event[:at] + bytes([event[at] ^ 1]) + event[at + 1 :])
            with pytest.raises(ValueError, match="changed on its way"):
                decrypt.receive(event[:at])
    with pytest.raises(ValueError, match="not encrypted with this key"):
        Decrypt(bytes(32)).receive(sent[0])


def test_no_nonce_is_used_twice():
    sent = [event[:28] for _ in range(50) for event in try_out(Encrypt(KEY), range(20))]
    assert len(set(sent)) == 1000
    decrypt = Decrypt(KEY)
    for _ in range(300):
        decrypt.receive(*try_out(Encrypt(KEY), [1]))
    assert len(decrypt._ciphers) <= 256


def test_the_key_of_a_derived_channel_is_not_the_secret():
    assert Encrypt(KEY).key() == Encrypt(KEY).key() != Encrypt(bytes(32)).key()
    assert KEY.hex() not in Encrypt(KEY).key()
    assert repr(KEY) not in repr(vars(Encrypt(KEY)).keys())


@pytest.mark.parametrize(("key", "error"), [("a" * 32, TypeError), (b"short", ValueError), (bytes(64), ValueError)])
def test_keys_of_the_wrong_kind_are_refused(key, error):
    for cls in (Encrypt, Decrypt):
        with pytest.raises(error, match="token_bytes"):
            cls(key)


@given(
    arrays.arrays(
        st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "u2", "i8"]),
        arrays.array_shapes(min_side=0),
    ),
    st.sampled_from([0.5, 1.0, 0.01, 1000.0]),
)
def test_steps_bound_the_error(values, step):
    (received,) = try_out(Quantise(step=step), [values], Dequantise())
    check(values, received, step)


@given(arrays.arrays(st.sampled_from(["f4", "f8", "i2", "u8"]), arrays.array_shapes()), st.integers(1, 32))
def test_bits_bound_the_error(values, bits):
    (received,) = try_out(Quantise(bits=bits), [values], Dequantise())
    spread = float(values.max()) / 4 - float(values.min()) / 4 if np.isfinite(values).all() else 0.0
    check(values, received, spread / (2**bits - 1) * 4)


def check(values, received, step):
    assert received.dtype == values.dtype
    assert received.shape == values.shape
    if values.size == 0 or not np.isfinite(values).all():
        assert received.tobytes() == values.tobytes()
        return
    wide, got = values.astype("f8") / 4, received.astype("f8") / 4  # so that no difference overflows
    eps = np.finfo(values.dtype if values.dtype.kind == "f" else "f8").eps
    rounding = np.abs(wide).max() * eps * 4
    whole = 0.5 if values.dtype.kind != "f" else 0
    assert np.abs(got - wide).max() <= (step / 2 * (1 + 1e-9) + whole) / 4 + rounding


@given(st.one_of(st.integers(), st.floats()), st.sampled_from([0.25, 1.0, 10.0]))
def test_numbers_keep_their_type(value, step):
    (received,) = try_out(Quantise(step=step), [value], Dequantise())
    assert type(received) is type(value)
    if value == value and abs(value) < 1e9:
        assert abs(received - value) <= step / 2 + 0.5 * isinstance(value, int) + 1e-6
    elif not abs(value) < step * 2**53:
        assert received == value or value != value


def test_fields_are_quantised_and_others_are_not():
    events = [{"id": 1.26, "x": 1.26, "grid": np.array([0.1, 0.9], "f4")}]
    (received,) = try_out(Quantise(step=0.5, fields=["x", "grid"]), events, Dequantise())
    assert (received["id"], received["x"], received["grid"].tolist()) == (1.26, 1.5, [0, 1])
    assert list(received) == list(events[0])
    assert try_out(Quantise(step=1, fields="price"), [Trade("RAY", 1.4)], Dequantise(Trade)) == [Trade("RAY", 1.0)]


def test_quantised_arrays_are_smaller():
    (_, (_, _, _, codes)) = try_out(Quantise(bits=8), [np.linspace(0, 1, 1000)])[0]
    assert codes.dtype == np.uint8
    (_, (_, _, _, codes)) = try_out(Quantise(step=0.1), [np.linspace(-100, 100, 1000)])[0]
    assert codes.dtype == np.int16
    (_, (_, _, _, codes)) = try_out(Quantise(bits=16), [np.full(9, 3.5)])[0]
    assert not codes.any()


@pytest.mark.parametrize("arguments", [{}, {"bits": 8, "step": 1}, {"bits": 0}, {"bits": 33}, {"step": 0}])
def test_quantisation_needs_bits_or_a_step(arguments):
    with pytest.raises(ValueError, match=r"give one|from 1 to 32|above 0"):
        Quantise(**arguments)


@pytest.mark.parametrize("event", [True, "text", None, 1j, [1, 2]])
def test_only_numbers_are_quantised(event):
    with pytest.raises(Exception, match="takes numbers"):
        at_work(Quantise(step=1)).enqueue([event])
    with pytest.raises(Exception, match="lacks one"):
        at_work(Quantise(step=1, fields="size")).enqueue(prices(1))
    with pytest.raises(Exception, match="give step"):
        at_work(Quantise(bits=8)).enqueue([1.5])
    with pytest.raises(TypeError, match="Quantise has sent"):
        Dequantise().receive(event)


@pytest.mark.parametrize(("method", "level"), [("zip", None), ("bz2", 0), ("zlib", 10), ("lzma", -1)])
def test_unknown_methods_and_levels_are_refused(method, level):
    with pytest.raises(ValueError, match=r"one of|from"):
        Compress(method, level)
