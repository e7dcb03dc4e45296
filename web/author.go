package web

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strings"
	"unicode"
	"unicode/utf8"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// namesDigest identifies the content of the menu.
func namesDigest(people []*arbev1.Agent) string {
	sum := sha256.New()
	for _, p := range people {
		for _, text := range []string{p.Id, p.Kind, p.Name, p.Handle} {
			_, _ = sum.Write([]byte(text + "\x00")) // a hash never fails
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

func namesTopic(house string, people []*arbev1.Agent) topic {
	return topic{"names", house, namesDigest(people)}
}

func authorOf(a *arbev1.Agent) transcript.Author {
	tone := fnv.New32a()
	_, _ = tone.Write([]byte(a.Id))
	return transcript.Author{Name: a.Name, Initial: initial(a.Name), Bot: a.Kind == "bot", Tone: tone.Sum32() % 8}
}

// initial returns the first letter or digit of a name, as a capital.
func initial(name string) string {
	i := strings.IndexFunc(name, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
	if i < 0 {
		return "?"
	}
	c, _ := utf8.DecodeRuneInString(name[i:])
	return string(unicode.ToUpper(c))
}

func accountName(a *arbev1.Agent) string { return clip(a.GetName(), maxWord) }
