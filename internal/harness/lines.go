package harness

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// ReadLines calls line with each line of r until its end, as [Reader.Line] expects: without an end of line, valid UTF-8, and
// at most [MaxLine] bytes long. Blank lines are skipped. The bytes are valid during the call only. ReadLines holds one line
// in memory, however long the lines of r are.
func ReadLines(r io.Reader, line func(text []byte, cut int64)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var text []byte
	var cut int64
	for {
		piece, err := in.ReadSlice('\n')
		if keep := MaxLine - len(text); len(piece) > keep {
			cut += int64(len(piece) - keep)
			piece = piece[:keep]
		}
		text = append(text, piece...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		whole := bytes.TrimRight(text, "\r\n")
		if len(bytes.TrimSpace(whole)) > 0 {
			if !utf8.Valid(whole) {
				whole = bytes.ToValidUTF8(whole, []byte("\uFFFD"))
			}
			line(whole, cut)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		if text, cut = text[:0], 0; cap(text) > 1<<20 {
			text = nil // do not keep the memory of one long line for the rest of a run
		}
	}
}
