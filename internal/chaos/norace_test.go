//go:build !race

package chaos

// raceEnabled says that this program, and so the one it kills, looks for data races.
const raceEnabled = false
