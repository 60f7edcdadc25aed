"""Programs, layouts and records for the tests of the forms that run over packs."""

import numpy

from echannel_ray.programs import native
from echannel_ray.programs.blocks import template
from echannel_ray.programs.frontend import check
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import LaidOut, Layout

READING = schema.RecordType(
    (
        schema.Field("id", schema.Int()),
        schema.Field("temperature", schema.Float()),
        schema.Field("room", schema.Text(8)),
        schema.Field("samples", schema.Array(schema.Int(32), (4,))),
    )
)
# A hundred bytes, unaligned.
LAYOUT = Layout(
    100,
    (
        LaidOut("id", 0, "<i8"),
        LaidOut("temperature", 12, "<f8"),
        LaidOut("room", 21, "<U8"),
        LaidOut("samples", 60, "<i4", (4,)),
    ),
)
DTYPE = numpy.dtype(
    {
        "names": [each.name for each in LAYOUT.fields],
        "formats": [(each.code, each.shape) for each in LAYOUT.fields],
        "offsets": [each.offset for each in LAYOUT.fields],
        "itemsize": LAYOUT.itemsize,
    }
)
RANGE = "20.0 <= temperature < 30.0"


def readings(temperatures, **columns):
    """A block of records."""
    array = numpy.zeros(len(temperatures), DTYPE)
    array["id"] = numpy.arange(len(temperatures))
    array["temperature"] = temperatures
    for name, values in columns.items():
        array[name] = values
    return array.tobytes()


def filter_of(text, params=None):
    """A filter of readings."""
    return check(text, READING, None, params or {})


def compiled(program, layout=LAYOUT, output=None):
    """Machine code, at once."""
    return native.compile_program(program, layout, output, template(program.output, output))
