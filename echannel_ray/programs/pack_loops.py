"""The functions that run a program over the records of a pack, as LLVM IR; `lowering` says what each takes."""

from __future__ import annotations

from typing import Final

from echannel_ray.schemas.schema import Layout

# Up to this size each record is copied before it is known whether it passes: that takes less than a wrong guess.
_MAX_COPIED_BYTES: Final = 256


def pack_functions(layout: Layout, output: Layout | None, template: str) -> list[str]:
    """The functions over packs of a filter, or those of a transformation."""
    if output is None:
        return [_SELECT % layout.itemsize, _survivors(layout.itemsize)]
    return [_transform(layout.itemsize, output.itemsize, template)]


_SELECT: Final = """
define i64 @select(ptr noalias readonly %%data, i64 %%count, ptr noalias %%state, ptr noalias %%mask) {
entry:
  %%is_empty = icmp eq i64 %%count, 0
  br i1 %%is_empty, label %%done, label %%loop
loop:
  %%i = phi i64 [ 0, %%entry ], [ %%next, %%mark ]
  %%at = mul i64 %%i, %d
  %%record = getelementptr i8, ptr %%data, i64 %%at
  %%result = call i64 @one(ptr %%record, ptr %%state, ptr null)
  %%has_trapped = icmp ugt i64 %%result, 1
  br i1 %%has_trapped, label %%trapped, label %%mark
mark:
  %%byte = trunc i64 %%result to i8
  %%mask_at = getelementptr i8, ptr %%mask, i64 %%i
  store i8 %%byte, ptr %%mask_at
  %%next = add i64 %%i, 1
  %%more = icmp ult i64 %%next, %%count
  br i1 %%more, label %%loop, label %%done
done:
  ret i64 -1
trapped:
  %%index = shl i64 %%i, 20
  %%status = or i64 %%index, %%result
  ret i64 %%status
}
"""


def _survivors(itemsize: int) -> str:
    """The function that picks the records that pass. It copies nothing while all do: then the block itself survives."""
    return f"""
define i64 @survivors(ptr noalias readonly %data, i64 %count, ptr noalias %state,
                     ptr noalias %out, ptr noalias %passed) {{
entry:
  br label %all
all:
  %i = phi i64 [ 0, %entry ], [ %i_next, %another ]
  %is_end = icmp eq i64 %i, %count
  br i1 %is_end, label %all_pass, label %first
first:
  %at = mul i64 %i, {itemsize}
  %record = getelementptr i8, ptr %data, i64 %at
  %result = call i64 @one(ptr %record, ptr %state, ptr null)
  %passes = icmp eq i64 %result, 1
  br i1 %passes, label %another, label %stops
another:
  %i_next = add i64 %i, 1
  br label %all
stops:
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %data, i64 %at, i1 false)
  %fails_first = icmp eq i64 %result, 0
  br i1 %fails_first, label %some, label %trapped
some:
  %j = phi i64 [ %i, %stops ], [ %k, %marked ]
  %n = phi i64 [ %i, %stops ], [ %n_next, %marked ]
  %k = add i64 %j, 1
  %is_last = icmp eq i64 %k, %count
  br i1 %is_last, label %end, label %each
each:
  %k_at = mul i64 %k, {itemsize}
  %k_record = getelementptr i8, ptr %data, i64 %k_at
  %k_result = call i64 @one(ptr %k_record, ptr %state, ptr null)
  %has_trapped = icmp ugt i64 %k_result, 1
  br i1 %has_trapped, label %trapped, label %mark
mark:
  %n_at = mul i64 %n, {itemsize}
  %place = getelementptr i8, ptr %out, i64 %n_at
  {_copied(itemsize)}
marked:
  %n_next = add i64 %n, %k_result
  br label %some
all_pass:
  store i64 %count, ptr %passed, align 1
  ret i64 -1
end:
  store i64 %n, ptr %passed, align 1
  ret i64 -1
trapped:
  %index = phi i64 [ %i, %stops ], [ %k, %each ]
  %wrong = phi i64 [ %result, %stops ], [ %k_result, %each ]
  %before = phi i64 [ %i, %stops ], [ %n, %each ]
  store i64 %before, ptr %passed, align 1
  %index_20 = shl i64 %index, 20
  %status = or i64 %index_20, %wrong
  ret i64 %status
}}
"""


def _copied(itemsize: int) -> str:
    copy = f"call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %k_record, i64 {itemsize}, i1 false)\n  br label %marked"
    if itemsize <= _MAX_COPIED_BYTES:
        return copy
    return f"""%k_passes = icmp eq i64 %k_result, 1
  br i1 %k_passes, label %copies, label %marked
copies:
  {copy}"""


def _transform(itemsize: int, output_size: int, template: str) -> str:
    return f"""
define i64 @transform(ptr noalias readonly %data, i64 %count, ptr noalias %state,
                     ptr noalias %out, ptr noalias %passed, ptr noalias %mask) {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %mark ]
  %n = phi i64 [ 0, %entry ], [ %n_next, %mark ]
  %is_end = icmp eq i64 %i, %count
  br i1 %is_end, label %end, label %each
each:
  %at = mul i64 %i, {itemsize}
  %record = getelementptr i8, ptr %data, i64 %at
  %n_at = mul i64 %n, {output_size}
  %place = getelementptr i8, ptr %out, i64 %n_at
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr {template}, i64 {output_size}, i1 false)
  %result = call i64 @one(ptr %record, ptr %state, ptr %place)
  %has_trapped = icmp ugt i64 %result, 1
  br i1 %has_trapped, label %trapped, label %mark
mark:
  %byte = trunc i64 %result to i8
  %mask_at = getelementptr i8, ptr %mask, i64 %i
  store i8 %byte, ptr %mask_at
  %n_next = add i64 %n, %result
  %next = add i64 %i, 1
  br label %head
end:
  store i64 %n, ptr %passed, align 1
  ret i64 -1
trapped:
  store i64 %n, ptr %passed, align 1
  %index = shl i64 %i, 20
  %status = or i64 %index, %result
  ret i64 %status
}}
"""
