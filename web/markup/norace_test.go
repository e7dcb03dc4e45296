//go:build !race

package markup

const raceEnabled = false
