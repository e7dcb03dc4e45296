package markup

import (
	"fmt"
	"math"
	"strings"
)

// The colours of a terminal beyond the first sixteen: a cube of six levels for red, green and blue, and 24 greys.
const (
	firstCube, firstGrey, colours = 16, 232, 256
)

var cubeLevels = [6]int{0, 95, 135, 175, 215, 255}

// rgb is a colour by its channels, from 0 to 255.
type rgb [3]int

// paletteRGB returns a colour of the palette; n is at least firstCube.
func paletteRGB(n int) rgb {
	if n >= firstGrey {
		grey := 8 + 10*(n-firstGrey)
		return rgb{grey, grey, grey}
	}
	n -= firstCube
	return rgb{cubeLevels[n/36], cubeLevels[n/6%6], cubeLevels[n%6]}
}

// The background and text colour of terminals in each theme: --term and --term-ink in the style sheet.
var (
	lightGround, lightInk = rgb{0xf3, 0xf3, 0xf0}, rgb{0x24, 0x28, 0x26}
	darkGround, darkInk   = rgb{0x0e, 0x10, 0x0f}, rgb{0xd5, 0xd9, 0xd6}
	black, white          = rgb{}, rgb{255, 255, 255}
)

// legible is the minimum contrast of text under WCAG AA.
const legible = 4.5

// Palette returns the style sheet of these 240 colours. A program chose them for its author's terminal, not for ours. So
// Palette darkens or lightens a text colour until it is legible on the theme's background, and a background until the theme's
// text is legible on it.
func Palette() string {
	var b strings.Builder
	for n := firstCube; n < colours; n++ {
		c := paletteRGB(n)
		fmt.Fprintf(&b, ".term-fgx%d{color:light-dark(%s,%s)}.term-bgx%[1]d{background:light-dark(%[4]s,%[5]s)}", n,
			c.against(lightGround, black), c.against(darkGround, white), c.against(lightInk, white), c.against(darkInk, black))
	}
	return b.String()
}

// against moves c towards another colour, just far enough to make it legible on other.
func (c rgb) against(other, towards rgb) rgb {
	for step := 0; step <= 20; step++ {
		var moved rgb
		for i := range c {
			moved[i] = c[i] + (towards[i]-c[i])*step/20
		}
		if contrast(moved, other) >= legible {
			return moved
		}
	}
	return towards
}

func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]) }

// contrast returns the contrast of two colours as WCAG defines it, from 1 to 21.
func contrast(a, b rgb) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func (c rgb) luminance() float64 {
	total := 0.0
	for i, weight := range [...]float64{0.2126, 0.7152, 0.0722} {
		v := float64(c[i]) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		total += weight * v
	}
	return total
}

// nearestColour returns the closest colour of the palette. Any other colour would need a style attribute, which the page's
// security policy forbids.
func nearestColour(red, green, blue int) int {
	best, least := firstCube, -1
	for n := firstCube; n < colours; n++ {
		c, distance := paletteRGB(n), 0
		for i, want := range [...]int{red, green, blue} {
			distance += (c[i] - want) * (c[i] - want)
		}
		if least < 0 || distance < least {
			best, least = n, distance
		}
	}
	return best
}
