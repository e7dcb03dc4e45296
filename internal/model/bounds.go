package model

import "fmt"

// Limits of the events of an answer, whose sender is not trusted. They are checked before an event is decoded, so that
// decoders need no checks. Real providers stay far below these limits.
const (
	// maxEvent is the largest size of an event, in bytes. The last event of responses repeats the whole answer.
	maxEvent = 4 << 20
	// maxLevels is how deep an event may be nested. In some dialects it contains the arguments of calls.
	maxLevels = maxDepth + 28
	// maxValues is how many values an event may have, and maxElements how many an array may have.
	maxValues, maxElements = 20_000, 1024
	// maxNumber is how many characters a number may have.
	maxNumber = 64
	// maxRefusal is how long a refusal may be, in bytes.
	maxRefusal = 16 << 10
	// maxNames limits the names of all called functions together, in bytes.
	maxNames = 64 << 10
	// maxSignatures is the largest number of pieces of one block's signature.
	maxSignatures = 64
	// maxItems is how many blocks or items an answer may begin.
	maxItems = 1024
)

// A server may send quietBytes and quietEvents without progress. Progress is growth of the answer; each byte of it
// allows some more.
const (
	quietBytes, bytesEach   = 8 << 20, 128
	quietEvents, eventsEach = 16 << 10, 1
)

// allowance is how much a server may send without progress.
type allowance struct{ left, most, each float64 }

func allow(most, each float64) allowance { return allowance{most, most, each} }

// spend takes n from the allowance, and reports whether it had so much.
func (a *allowance) spend(n float64) bool {
	a.left -= n
	return a.left >= 0
}

// earn adds for progress.
func (a *allowance) earn(progress int) { a.left = min(a.left+float64(progress)*a.each, a.most) }

// boundsError says what is wrong with an event. It contains no text of the server.
type boundsError struct{ words string }

func (e *boundsError) Error() string { return e.words }

func outOfBounds(format string, args ...any) error { return &boundsError{fmt.Sprintf(format, args...)} }
