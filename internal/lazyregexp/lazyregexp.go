// Package lazyregexp has regular expressions that are compiled at their first use.
//
// Every start of arbe initializes the variables of all packages, even arbe --help. To compile all expressions of the program
// then would take longer than most verbs. Go's own commands have a package like this, for the same reason.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression that is compiled at most once. Its methods are those of [regexp.Regexp]. It is safe for
// concurrent use.
type Regexp struct {
	pattern string
	once    sync.Once
	re      *regexp.Regexp
}

// New returns the regular expression of a pattern. It is small enough for the compiler to inline, so a variable of a package
// costs nothing at start. A pattern with an error panics at its first use; a test compiles every pattern in the program, for
// which it must be a literal.
func New(pattern string) *Regexp {
	return &Regexp{pattern: pattern}
}

func (r *Regexp) compiled() *regexp.Regexp {
	r.once.Do(func() { r.re = regexp.MustCompile(r.pattern) })
	return r.re
}

func (r *Regexp) MatchString(s string) bool {
	return r.compiled().MatchString(s)
}

func (r *Regexp) FindString(s string) string {
	return r.compiled().FindString(s)
}

func (r *Regexp) FindAllString(s string, n int) []string {
	return r.compiled().FindAllString(s, n)
}

func (r *Regexp) FindStringSubmatch(s string) []string {
	return r.compiled().FindStringSubmatch(s)
}

func (r *Regexp) FindStringSubmatchIndex(s string) []int {
	return r.compiled().FindStringSubmatchIndex(s)
}

func (r *Regexp) FindSubmatch(b []byte) [][]byte {
	return r.compiled().FindSubmatch(b)
}

func (r *Regexp) ReplaceAll(src, repl []byte) []byte {
	return r.compiled().ReplaceAll(src, repl)
}

func (r *Regexp) ReplaceAllString(src, repl string) string {
	return r.compiled().ReplaceAllString(src, repl)
}

func (r *Regexp) ReplaceAllStringFunc(src string, repl func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(src, repl)
}
