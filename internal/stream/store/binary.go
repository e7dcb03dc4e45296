package store

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"
)

// BinaryFormat declares that all arguments or all columns of a statement are in Postgres' binary format.
var BinaryFormat = []int16{pgx.BinaryFormatCode}

// Timestamp decodes a binary timestamptz: microseconds since the start of the year 2000.
func Timestamp(data []byte) time.Time {
	const epoch = 946_684_800_000_000 // in Unix time
	return time.UnixMicro(epoch + int64(binary.BigEndian.Uint64(data))).UTC()
}
