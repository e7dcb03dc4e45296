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
	epoch := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	return epoch.Add(time.Duration(binary.BigEndian.Uint64(data)) * time.Microsecond)
}
