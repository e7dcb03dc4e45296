// Command lexers writes the lexers that markup uses into separate files in the current directory.
//
// Package markup does not import chroma's package of lexers, because that loads all of its 250 lexers whenever the program
// starts. Loading them takes longer than everything else in the start of a command, and most of them are never used. Instead,
// markup reads these files when it first needs them.
package main

import (
	"log"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// languages lists the lexers in use, by chroma's names. Add one only if it passes TestHostileCodeCostsLittle.
var languages = []string{
	"Awk", "Bash", "Bash Session", "C", "C#", "C++", "CSS", "Clojure", "Dart", "Diff", "Docker", "Elixir", "Erlang", "Go",
	"GraphQL", "HTML", "Haskell", "INI", "JSON", "Java", "JavaScript", "Kotlin", "Lua", "Makefile", "Nginx configuration file",
	"Nix", "OCaml", "PHP", "Perl", "PowerShell", "Protocol Buffer", "Python", "R", "Ruby", "Rust", "SCSS", "SQL", "Scala", "Swift",
	"TOML", "TypeScript", "XML", "YAML", "markdown",
}

func main() {
	log.SetFlags(0)
	for _, name := range languages {
		lexer := regexLexer(lexers.Get(name))
		if lexer == nil {
			log.Fatalf("chroma has no lexer %s that is made of regular expressions", name)
		}
		if name == "Go" {
			lexer = withPlainStrings(lexer)
		}
		text, err := chroma.Marshal(lexer)
		if err == nil {
			err = os.WriteFile(fileName(name), []byte(sorted(string(text))), 0o644)
		}
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
}

// sorted sorts the states of a lexer, because chroma writes them in the random order of a map.
func sorted(text string) string {
	const end = "    </state>\n"
	head, states, _ := strings.Cut(text, "  <rules>\n")
	list := strings.SplitAfter(states, end)
	slices.Sort(list[:len(list)-1]) // the last element follows the states
	return head + "  <rules>\n" + strings.Join(list, "") + "\n"
}

func fileName(language string) string {
	return strings.NewReplacer(" ", "-", "#", "-sharp", "+", "p").Replace(strings.ToLower(language)) + ".xml"
}

// regexLexer unwraps a lexer that another one, such as that of Markdown, wraps only to prepare its text.
func regexLexer(lexer chroma.Lexer) *chroma.RegexLexer {
	if l, ok := lexer.(*chroma.RegexLexer); ok || lexer == nil {
		return l
	}
	field := reflect.Indirect(reflect.ValueOf(lexer)).FieldByName("Lexer")
	if !field.IsValid() {
		return nil
	}
	l, _ := field.Interface().(*chroma.RegexLexer)
	return l
}

// withPlainStrings returns the lexer of Go without templates in raw strings, because a file cannot express them.
func withPlainStrings(lexer *chroma.RegexLexer) *chroma.RegexLexer {
	rules := lexer.MustRules().Clone()
	for i, r := range rules["root"] {
		if strings.HasPrefix(r.Pattern, "(`)") {
			rules["root"][i].Type = chroma.ByGroups(chroma.LiteralString, chroma.LiteralString, chroma.LiteralString)
		}
	}
	return chroma.MustNewLexer(lexer.Config(), func() chroma.Rules { return rules })
}
