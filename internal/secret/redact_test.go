package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/secret"
)

// value is a key with characters that URLs and JSON escape.
const value = `sk-proj/4f+9"Zé&xyzzy=Quux`

// pem is a value of several lines.
const pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nqXyZ0123456789abcdefghijklmnopqr\n-----END KEY-----"

// disguises are the forms in which a value must be found.
func disguises(value string) map[string]string {
	quoted, _ := json.Marshal(map[string]string{"key": value})
	wrapped := base64.StdEncoding.EncodeToString([]byte("some words before it: " + value + strings.Repeat(" and after", 10)))
	var lines []string
	for len(wrapped) > 19 {
		lines, wrapped = append(lines, wrapped[:19]), wrapped[19:]
	}
	all := map[string]string{
		"plain": "key=" + value + "!", "at the start": value + " is it", "at the end": "it is " + value, "alone": value, "twice": value + value,
		"in a query": "https://x.example/?k=" + url.QueryEscape(value), "in a path": "https://x.example/" + url.PathEscape(value),
		"in a path with small escapes": strings.ToLower(url.PathEscape("/")) + strings.ReplaceAll(url.PathEscape(value), "%2F", "%2f"),
		"in JSON":                      string(quoted), "in hexadecimal": hex.EncodeToString([]byte("x" + value + "y")),
		"in wrapped base64": strings.Join(append(lines, wrapped), "\n"), "wrapped": value[:2] + "\r\n" + value[2:5] + "\n" + value[5:],
	}
	for before := range 4 {
		text := strings.Repeat("a", before) + value + "tail"
		all[fmt.Sprintf("in base64, %d before", before)] = base64.StdEncoding.EncodeToString([]byte(text))
		all[fmt.Sprintf("in URL base64, %d before", before)] = base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	return all
}

// betrays reports whether a text still reveals a value: as it is, or in base64 or hexadecimal.
func betrays(text []byte, value string) bool {
	flat := strings.NewReplacer("\n", "", "\r", "").Replace(string(text))
	plain := strings.NewReplacer("\n", "", "\r", "").Replace(value)
	if strings.Contains(flat, plain) || strings.Contains(flat, hex.EncodeToString([]byte(value))) || strings.Contains(flat, url.QueryEscape(value)) {
		return true
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for cut := range 4 {
			if cut < len(flat) {
				trimmed := strings.TrimRight(flat[cut:], "=")
				if decoded, _ := e.DecodeString(trimmed[:len(trimmed)/4*4]); bytes.Contains(decoded, []byte(value)) {
					return true
				}
			}
		}
	}
	return false
}

func TestAValueIsRedactedInEveryForm(t *testing.T) {
	t.Parallel()
	for _, v := range []string{value, pem, "s3cret", "0123456789"} {
		r := secret.NewRedactor([]byte("another-value"), []byte(v))
		for name, text := range disguises(v) {
			got := r.Bytes([]byte(text))
			if betrays(got, v) {
				t.Errorf("%q %s: %s", v, name, got)
			}
			if len(got) != len(text) || strings.Count(string(got), "\n") != strings.Count(text, "\n") {
				t.Errorf("%q %s: the size or the lines changed: %q", v, name, got)
			}
			if got := r.String(text); betrays([]byte(got), v) {
				t.Errorf("%q %s as a string: %s", v, name, got)
			}
			if again := r.Bytes(got); !bytes.Equal(again, got) {
				t.Errorf("%q %s: redacting again changes it", v, name)
			}
		}
	}
}

func TestOtherTextIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := secret.NewRedactor([]byte(value), []byte(pem))
	for _, text := range []string{"", "sk-proj", "nothing here", value[:len(value)-1], strings.Repeat(value[:5], 100), "-----BEGIN KEY-----"} {
		if got := r.String(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	p := []byte("nothing here")
	if got := r.Bytes(p); &got[0] != &p[0] {
		t.Error("a text without a value is copied")
	}
	if secret.NewRedactor([]byte("short"), []byte("       "), nil) != nil {
		t.Error("values that are too short, or blank, are redacted")
	}
	var none *secret.Redactor
	if none.String(value) != value || string(none.Bytes([]byte(value))) != value {
		t.Error("a nil redactor redacts")
	}
}

// streamed writes text in pieces of the sizes that next returns, and returns the output.
func streamed(r *secret.Redactor, text string, next func() int) []byte {
	var out []byte
	s := r.Stream(func(p []byte) { out = append(out, p...) })
	for len(text) > 0 {
		n := min(next(), len(text))
		_, _ = s.Write([]byte(text[:n]))
		text = text[n:]
	}
	s.Flush()
	return out
}

func TestAValueIsRedactedInPieces(t *testing.T) {
	t.Parallel()
	for _, v := range []string{value, pem, "s3cret"} {
		r := secret.NewRedactor([]byte("sk-project"), []byte("3cret-and-more"), []byte(v))
		for name, text := range disguises(v) {
			text = "before it: " + text + " and more."
			for size := 1; size < 20; size++ {
				got := streamed(r, text, func() int { return size })
				if betrays(got, v) || len(got) != len(text) {
					t.Errorf("%q %s in pieces of %d: %q", v, name, size, got)
				}
			}
		}
	}
}

// A stream without a time limit returns exactly what one call returns.
func TestPiecesAreRedactedLikeTheWhole(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		word := func(n int) string {
			var b strings.Builder
			for range n {
				b.WriteByte("ab\n"[random.IntN(3)])
			}
			return b.String()
		}
		r := secret.NewRedactor([]byte(word(6+random.IntN(8))), []byte(word(6+random.IntN(8))))
		text := word(200)
		whole := r.String(text)
		if got := streamed(r, text, func() int { return 1 + random.IntN(12) }); string(got) != whole {
			t.Fatalf("%q: %q, want %q", text, got, whole)
		}
	}
}

// observed returns what an observer sees of a stream: how much it has passed on after each written piece, and when.
func observed(r *secret.Redactor, live bool, pieces []string) string {
	var seen strings.Builder
	var given atomic.Int64
	take := func(p []byte) { given.Add(int64(len(p))) }
	began := time.Now()
	s := r.Stream(take)
	if live {
		s = r.Live(take)
	}
	for _, p := range pieces {
		_, _ = s.Write([]byte(p))
		fmt.Fprint(&seen, given.Load(), " ")
	}
	for end := 0; live && end < 20; end++ {
		time.Sleep(10 * time.Millisecond) // fake time of the test's bubble
		synctest.Wait()
		fmt.Fprint(&seen, time.Since(began), ":", given.Load(), " ")
	}
	s.Flush()
	fmt.Fprint(&seen, given.Load())
	return seen.String()
}

// A writer who guesses, and sees what the stream passes on and when, does not learn whether a guess begins like a
// value.
func TestAStreamRevealsNothingAboutTheBeginningOfAValue(t *testing.T) {
	t.Parallel()
	const value = "sk-ant-api03-Zq8vN2xLw5TfRb7KmYc4"
	r := secret.NewRedactor([]byte(value))
	prompts := func(guess string) [][]string {
		bytewise := strings.Split(guess, "")
		return [][]string{{guess}, {"$ ", guess}, bytewise, {"a line\n" + guess, " and more"}, {strings.Repeat("words ", 100), guess}, {guess, "\n", guess}}
	}
	wrong := strings.Repeat("?", len(value))
	for n := 1; n < len(value); n++ {
		right := value[:n]
		forms := map[string][2]string{
			"plain": {right, wrong[:n]}, "one wrong": {right, right[:n-1] + "?"},
			"hexadecimal": {hex.EncodeToString([]byte(right)), hex.EncodeToString([]byte(wrong[:n]))},
		}
		for form, of := range forms {
			known, unknown := prompts(of[0]), prompts(of[1])
			for i := range known {
				if a, b := observed(r, false, known[i]), observed(r, false, unknown[i]); a != b {
					t.Fatalf("%s, %d bytes: it gives %s for the right one and %s for a wrong one", form, n, a, b)
				}
				if n%8 != 1 {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					if a, b := observed(r, true, known[i]), observed(r, true, unknown[i]); a != b {
						t.Fatalf("live, %s, %d bytes: it gives %s for the right one and %s for a wrong one", form, n, a, b)
					}
				})
			}
		}
	}
}

// A prompt waits for its answer, so it must be shown even if nothing follows it.
func TestALiveStreamHoldsBytesBackForALimitedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var out string
		s := secret.NewRedactor([]byte("sk-0123456789")).Live(func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			out += string(p)
		})
		shown := func() string {
			mu.Lock()
			defer mu.Unlock()
			return out
		}
		shows := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if out := shown(); out != want {
				t.Errorf("%q is shown, want %q", out, want)
			}
		}
		write := func(text string) { _, _ = s.Write([]byte(text)) }
		write("Continue? ")
		shows(0, "")
		shows(100*time.Millisecond, "Continue? ")
		write("sk-01")
		shows(20*time.Millisecond, "Continue? ")
		write("23456789!")
		shows(100*time.Millisecond, "Continue? xxxxxxxxxxxxx!")
		// A value that arrives slowly is shown until the rest is there.
		write("sk-")
		shows(100*time.Millisecond, "Continue? xxxxxxxxxxxxx!sk-")
		write("0123456789")
		shows(100*time.Millisecond, "Continue? xxxxxxxxxxxxx!sk-xxxxxxxxxx")
		// The stream does not wait while bytes keep arriving.
		for range 40 {
			write(".")
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := strings.Count(shown(), "."); n < 29 {
			t.Errorf("%d of 40 dots are shown", n)
		}
		s.Flush()
	})
}

func TestShortAndCommonValuesAreNotRedacted(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"", "0", "true", "type", "text", "short", "content", "Password", "localhost", "changeme", "aaaaaaaaaa", "       ", "12345\n"} {
		if secret.Redactable([]byte(v)) || secret.NewRedactor([]byte(v)) != nil {
			t.Errorf("%q is redacted", v)
		}
	}
	for _, v := range []string{"staging1", "s3cret", value, pem} {
		if !secret.Redactable([]byte(v)) {
			t.Errorf("%q is not redacted", v)
		}
	}
}

// People run what they copy, so the mask must mean nothing to a shell.
func TestAShellDoesNotExpandTheMask(t *testing.T) {
	t.Parallel()
	got := secret.NewRedactor([]byte("staging1")).String("rm -rf ./staging1")
	dir := t.TempDir()
	for _, name := range []string{"12345678", "staging1", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("sh", "-c", got)
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", got, err, out)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("%s removed something: %v are left", got, left)
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	r := secret.NewRedactor([]byte(value))
	var none *secret.Redactor
	if !r.Has("it is "+hex.EncodeToString([]byte(value))) || r.Has(value[1:]) || none.Has(value) {
		t.Error("it finds a missing value, or misses one")
	}
	if got := secret.Everything.String("all\nof it"); got != "xxx\nxxxxx" {
		t.Errorf("of everything, %q is left", got)
	}
}

func TestALogHasNoKnownValue(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"JSON": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		known := new(secret.Known)
		logger := slog.New(secret.LogHandler(handler(&b), known))
		known.Add([]byte(value))
		logger.With("with", value).WithGroup("g").Error("calling "+value, "text", value, "error", fmt.Errorf("x: %w", errors.New(value)),
			"bytes", []byte(value), "struct", struct{ Key string }{value}, slog.Group("in", "it", value), "n", 7)
		if betrays(b.Bytes(), value) || bytes.Contains(b.Bytes(), []byte("xyzzy")) {
			t.Errorf("%s: %s", name, &b)
		}
		if !strings.Contains(b.String(), "calling xxxx") || !strings.Contains(b.String(), "7") {
			t.Errorf("%s: the rest is gone: %s", name, &b)
		}
	}
}

// Values and a text that resemble each other must not keep the server busy.
func TestAHostileTextIsRedactedInTime(t *testing.T) {
	t.Parallel()
	var values [][]byte
	for i := range 200 {
		values = append(values, []byte(strings.Repeat("a", 5000+i)+"b"))
	}
	r := secret.NewRedactor(values...)
	began := time.Now()
	text := strings.Repeat("a", 1<<20)
	got := streamed(r, text, func() int { return 32 << 10 })
	if took := time.Since(began); took > 30*time.Second { // without a limit it takes many minutes
		t.Errorf("it took %v", took)
	}
	if len(got) != len(text) {
		t.Errorf("%d bytes became %d", len(text), len(got))
	}
	// Text that was not searched is not shown.
	if got := r.String(strings.Repeat("a", 1<<16) + string(values[7])); strings.Contains(got, string(values[7])) {
		t.Error("the value is shown")
	}
}

func TestALogKeepsTheValuesOfManyHouses(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	known := new(secret.Known)
	logger := slog.New(secret.LogHandler(slog.NewTextHandler(&b, nil), known))
	for i := range 100 { // a hostile house fills it; a value that is used again is known again
		known.Add([]byte(fmt.Sprint(i) + strings.Repeat("wxyz", 15<<10)))
	}
	known.Add([]byte(value))
	logger.Error(value)
	if strings.Contains(b.String(), "xyzzy") {
		t.Errorf("it is %s", &b)
	}
}

func FuzzRedactor(f *testing.F) {
	f.Add("secret-value", "it is secret-value", uint8(3))
	f.Fuzz(func(t *testing.T, v, text string, size uint8) {
		r := secret.NewRedactor([]byte(v))
		got := r.Bytes([]byte(text))
		if len(got) != len(text) {
			t.Fatalf("%d bytes become %d", len(text), len(got))
		}
		if r != nil && !strings.Contains(v, "x") && strings.Contains(string(got), v) {
			t.Fatalf("%q is left in %q", v, got)
		}
		if out := streamed(r, text, func() int { return int(size)%50 + 1 }); len(out) != len(text) {
			t.Fatalf("%d bytes become %d in pieces", len(text), len(out))
		}
	})
}

func BenchmarkRedactor(b *testing.B) {
	// The output of a build: lines of words and paths, without a value.
	var text bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for text.Len() < 1<<20 {
		fmt.Fprintf(&text, "ok  \tgithub.com/example/project/internal/package%d\t%d.%03ds\n", random.IntN(1000), random.IntN(10), random.IntN(1000))
	}
	for _, n := range []int{1, 10, 200} {
		var values [][]byte
		for i := range n {
			v := make([]byte, 48)
			for j := range v {
				v[j] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[random.IntN(62)]
			}
			values = append(values, append([]byte(fmt.Sprintf("sk-%d-", i)), v...))
		}
		r := secret.NewRedactor(values...)
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				s := r.Stream(func([]byte) {})
				for at := 0; at < text.Len(); at += 32 << 10 {
					_, _ = s.Write(text.Bytes()[at:min(at+32<<10, text.Len())])
				}
				s.Flush()
			}
		})
	}
}
