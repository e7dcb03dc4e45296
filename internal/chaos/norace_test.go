//go:build !race

package chaos

// raceEnabled says whether this test, and so the server that it kills, is built with the race detector.
const raceEnabled = false
