package commandtest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Canary is the value of a secret that must not appear anywhere.
const Canary = "sk-canary-4f9ac1/77e0+b2d38"

// Bound are the bindings of an environment whose commands receive the canary, as $CANARY.
var Bound = []secret.Binding{{Name: "CANARY", Required: true}}

// SetCanary makes the canary a secret of a house.
func SetCanary(t testing.TB, secrets *secret.Secrets, scope db.Scope) {
	t.Helper()
	if _, _, err := secrets.Set(t.Context(), scope, "CANARY", []byte(Canary)); err != nil {
		t.Fatal(Detail(err))
	}
}

// CheckNoCanary fails the test if a text has the canary in any of the forms of [Traces].
func CheckNoCanary(t *testing.T, where, text string) {
	t.Helper()
	flat := strings.ReplaceAll(text, "\n", "")
	for form, trace := range Traces() {
		if strings.Contains(flat, trace) {
			t.Errorf("%s has it %s: %.300q", where, form, text)
		}
	}
}

// Traces returns the forms in which the canary would be shown, by their names.
func Traces() map[string]string {
	all := map[string]string{"plain": Canary, "hexadecimal": hex.EncodeToString([]byte(Canary))}
	for before := range 3 {
		form := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + Canary))
		all[fmt.Sprintf("base64 %d", before)] = strings.TrimRight(form[4:len(form)-4], "=")
	}
	return all
}
