"""Protobuf's wire format in small, for the metadata records: varints, and fields with a length.

    field    tag = number << 3 | type, as a varint; then
    type 0   varint: seven bits a byte, lowest first, the high bit says "more"; at most ten bytes
    type 2   length as a varint, then as many bytes
    type 1   eight bytes; type 5: four bytes (read only to be skipped)

A negative int32 or int64 is written as its 64-bit two's complement: ten bytes. Importing the protobuf library takes
longer than reading a ledger's metadata over the network, so these few records do without it.
Source: CodedInputStream.java, CodedOutputStream.java (protobuf 3.25).
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

from bkctl.errors import Corrupt

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
VARINT_SIZE_MAX: Final = 10
FIELD_NUMBER_MAX: Final = 2**29 - 1
_MASK64: Final = 2**64 - 1

T = TypeVar("T")

Field: TypeAlias = tuple[int, int, "int | bytes", int]
"""Number, type, value (an unsigned int for a varint), and the offset of the tag."""


def encode_varint(value: int) -> bytes:
    """The varint of a number from -2^63 to 2^64 - 1."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= _MASK64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    """A field that holds a number, bool or enum."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes, text or a message."""
    return b"".join((encode_varint(number << 3 | BYTES), encode_varint(len(value)), value))


def text_field(number: int, value: str) -> bytes:
    """A field that holds text."""
    return bytes_field(number, value.encode("utf-8"))


def decode_varint(data: bytes, offset: int, *, source: str, base: int = 0) -> tuple[int, int]:
    """The unsigned number at offset, and the offset after it; base is added to offsets in errors.

    Raises:
        Corrupt: data ends inside the number, or it has more than ten bytes or 64 bits.
    """
    value = shift = 0
    for position in range(offset, min(offset + VARINT_SIZE_MAX, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MASK64:
                break
            return value, position + 1
        shift += 7
    found = data[offset : offset + VARINT_SIZE_MAX]
    raise Corrupt("varint", source=source, offset=base + offset, expected="at most 64 bits", found=found)


def decode_fields(data: bytes, *, source: str, base: int = 0) -> list[Field]:
    """The fields of a message, in order; groups are refused.

    Raises:
        Corrupt: an impossible tag or number, or a field that is longer than the message.
    """
    fields: list[Field] = []
    offset, end = 0, len(data)
    while offset < end:
        start = offset
        tag = data[offset]
        if tag < 0x80:  # most fields have one byte for number and type
            offset += 1
        else:
            tag, offset = decode_varint(data, offset, source=source, base=base)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise Corrupt("field number", source=source, offset=base + start, expected="1 to 2^29 - 1", found=number)
        if kind == VARINT:
            value, offset = decode_varint(data, offset, source=source, base=base)
            fields.append((number, kind, value, base + start))
            continue
        if kind == BYTES:
            size, offset = decode_varint(data, offset, source=source, base=base)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Corrupt("field type", source=source, offset=base + start, expected="0, 1, 2 or 5", found=kind)
        if size > end - offset:
            raise Corrupt("field", source=source, offset=base + start, expected=f"{size} bytes", found=end - offset)
        fields.append((number, kind, data[offset : offset + size], base + start))
        offset += size
    return fields


def signed64(value: int) -> int:
    """A varint's number as an int64."""
    return value - 2**64 if value >= 2**63 else value


class Message:
    """The fields of one message, asked for by number and kind; of a repeated field the last one takes effect.

    Every accessor raises Corrupt when the field has another wire type.
    """

    __slots__ = ("_data", "_fields", "_source", "base")

    def __init__(self, data: bytes, *, source: str, base: int = 0) -> None:
        self._data = data
        self._fields = decode_fields(data, source=source, base=base)
        self._source = source
        self.base = base

    def after(self, known: int) -> bytes:
        """The fields with numbers after the known ones, as they are written."""
        if all(field[0] <= known for field in self._fields):
            return b""
        ends = [*(field[3] - self.base for field in self._fields[1:]), len(self._data)]
        found = [
            self._data[field[3] - self.base : end]
            for field, end in zip(self._fields, ends, strict=True)
            if field[0] > known
        ]
        return b"".join(found)

    def integer(self, number: int) -> int | None:
        """A signed number, or None where the field is absent."""
        found = None
        for field, kind, value, offset in self._fields:
            if field == number:
                if kind != VARINT or not isinstance(value, int):
                    raise self._wrong_type(number, VARINT, kind, offset)
                found = signed64(value)
        return found

    def raw(self, number: int) -> bytes | None:
        """Bytes, or None where the field is absent."""
        every = self.every(number)
        return every[-1][0] if every else None

    def every(self, number: int) -> list[tuple[bytes, int]]:
        """All values of a repeated field of bytes, each with the offset of its first byte."""
        found = []
        for field, kind, value, offset in self._fields:
            if field == number:
                if kind != BYTES or not isinstance(value, bytes):
                    raise self._wrong_type(number, BYTES, kind, offset)
                head = len(encode_varint(number << 3 | BYTES)) + len(encode_varint(len(value)))
                found.append((value, offset + head))
        return found

    def text(self, number: int) -> str | None:
        """Text, or None where the field is absent."""
        every = self.texts(number)
        return every[-1] if every else None

    def texts(self, number: int) -> list[str]:
        """All values of a repeated field of text."""
        return [self.as_text(value, offset) for value, offset in self.every(number)]

    def as_text(self, value: bytes, offset: int) -> str:
        """UTF-8 bytes of a field as text."""
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise Corrupt("text", source=self._source, offset=offset, expected="UTF-8", found=value) from None

    def required(self, number: int, value: T | None) -> T:
        """The value, or Corrupt if the field was absent."""
        if value is None:
            raise Corrupt("missing field", source=self._source, offset=self.base, expected=number, found="nothing")
        return value

    def _wrong_type(self, number: int, expected: int, found: int, offset: int) -> Corrupt:
        return Corrupt(f"type of field {number}", source=self._source, offset=offset, expected=expected, found=found)
