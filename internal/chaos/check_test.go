package chaos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// kept is a history that keeps every promise, of every kind of operation.
func kept() History {
	return History{
		Appends: []Append{
			{Log: "a", Writer: "w", Texts: []string{"one"}, Call: 0, Return: 10, Outcome: Acknowledged, Last: 1},
			{Log: "a", Writer: "w", Texts: []string{"two", "three"}, Call: 11, Return: 20, Outcome: Acknowledged, Last: 3},
			{Log: "a", Writer: "x", Texts: []string{"four"}, Call: 11, Return: 12, Outcome: Unknown},
			{Log: "a", Writer: "x", Texts: []string{"never"}, Call: 13, Return: 20, Outcome: Unknown},
			{Log: "a", Writer: "y", Texts: []string{"bad"}, Call: 11, Return: 30, Outcome: Refused},
			{Log: "a", Writer: "y", Texts: []string{"five"}, Call: 31, Return: 40, Outcome: Acknowledged},
			{Log: "b", Writer: "z", Texts: []string{"other"}, Call: 5, Return: 6, Outcome: Acknowledged, Last: 1},
		},
		Reads: []Read{
			{Log: "a", Call: 1, Return: 5, End: 1},
			{Log: "a", Call: 25, Return: 50, End: 4},
			{Log: "a", Call: 41, Return: 50, End: 5},
		},
		Tails: []Tail{
			{Log: "a", Name: "all", Seen: []Record{{1, "one"}, {2, "two"}, {3, "three"}, {4, "four"}, {5, "five"}}},
			{Log: "a", Name: "late", After: 3, Seen: []Record{{4, "four"}, {5, "five"}}},
			{Log: "a", Name: "at the end", After: 5},
		},
		Logs: map[string][]Record{
			"a": {{1, "one"}, {2, "two"}, {3, "three"}, {4, "four"}, {5, "five"}},
			"b": {{1, "other"}},
		},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("finds nothing in a history that keeps every promise", func(t *testing.T) {
		if found := Check(kept()); len(found) > 0 {
			t.Errorf("it found %v", found)
		}
	})
	for _, c := range []struct {
		name  string
		plant func(h *History)
		kind  Kind
	}{
		{"an acknowledged append that is gone from the end", func(h *History) {
			h.Logs["a"] = h.Logs["a"][:4]
			h.Tails, h.Reads = nil, nil
		}, Lost},
		{"an acknowledged append whose log is gone", func(h *History) { delete(h.Logs, "b") }, Lost},
		{"an acknowledged append in whose place is another", func(h *History) { h.Logs["b"][0].Text = "four" }, Lost},
		{"an end that was read and is not there", func(h *History) {
			h.Appends[5].Outcome = Unknown
			h.Logs["a"] = h.Logs["a"][:4]
			h.Tails = nil
		}, Lost},
		{"a retry that was written again", func(h *History) { h.Logs["a"] = append(h.Logs["a"], Record{6, "four"}) }, Doubled},
		{"a position left out", func(h *History) { h.Logs["a"][4].Seq = 6 }, Gap},
		{"positions that do not begin at 1", func(h *History) { h.Logs["b"][0].Seq = 0 }, Gap},
		{"half an append", func(h *History) {
			h.Appends[3].Texts = append(h.Appends[3].Texts, "four")
			h.Appends[2].Texts = []string{"something else"}
		}, Torn},
		{"an append that is not in its order", func(h *History) { slices.Reverse(h.Appends[1].Texts) }, Torn},
		{"an append within another", func(h *History) {
			h.Logs["a"][2].Text, h.Logs["a"][3].Text = "four", "three"
			h.Appends[1].Last = 0
		}, Torn},
		{"a read that saw half an append", func(h *History) { h.Reads[1] = Read{"a", 11, 50, 2} }, Torn},
		{"an acknowledgement of another position", func(h *History) { h.Appends[0].Last = 2 }, Misplaced},
		{"a refused append that was written", func(h *History) { h.Appends[2].Outcome = Refused }, Kept},
		{"a record that nobody wrote", func(h *History) { h.Logs["b"] = append(h.Logs["b"], Record{2, "what?"}) }, Strange},
		{"a record of another log", func(h *History) { h.Logs["b"] = append(h.Logs["b"], Record{2, "one"}) }, Strange},
		{"an append before one that was acknowledged when it began", func(h *History) { h.Appends[0].Call, h.Appends[0].Return = 21, 22 }, Reordered},
		{"an append of unknown outcome before one that was acknowledged when it began", func(h *History) { h.Appends[2].Call, h.Appends[2].Return = 45, 46 }, Reordered},
		{"a read that missed what was acknowledged", func(h *History) { h.Reads[2].End = 4 }, Reordered},
		{"a read that saw what was written later", func(h *History) { h.Reads[0].End = 3 }, Reordered},
		{"a read that saw less than one before it", func(h *History) { h.Reads[1].Call, h.Reads[1].Return = 60, 70 }, Reordered},
		{"a tail that sent a record twice", func(h *History) { h.Tails[0].Seen = slices.Insert(h.Tails[0].Seen, 2, Record{2, "two"}) }, Repeated},
		{"a tail that began again", func(h *History) { h.Tails[1].Seen = append(h.Tails[1].Seen, h.Tails[1].Seen...) }, Repeated},
		{"a tail that sent a record before its start", func(h *History) { h.Tails[2].Seen = []Record{{5, "five"}} }, Repeated},
		{"a tail that left a record out", func(h *History) { h.Tails[0].Seen = slices.Delete(h.Tails[0].Seen, 2, 3) }, Skipped},
		{"a tail that sent something else", func(h *History) { h.Tails[0].Seen[1].Text = "too" }, Altered},
		{"a tail that sent what is not in the log", func(h *History) { h.Tails[2].Seen = []Record{{6, "six"}} }, Altered},
		{"a tail that did not come to the end", func(h *History) { h.Tails[0].Seen = h.Tails[0].Seen[:4] }, Unfinished},
		{"a tail that sent nothing", func(h *History) { h.Tails[1].Seen = nil }, Unfinished},
	} {
		t.Run("finds "+c.name, func(t *testing.T) {
			h := kept()
			c.plant(&h)
			found := Check(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Kind == c.kind }) {
				t.Errorf("it found %v, want one of kind %q", found, c.kind)
			}
		})
	}
}

// The check of the order is ours, so it is compared with an independent checker of linearizability.
func TestCheckAgreesWithPorcupine(t *testing.T) {
	t.Parallel()
	const histories = 5_000
	linearizable := 0
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 0))
		h := happened(rng)
		for range rng.IntN(5) {
			disturb(rng, &h)
		}
		found := Check(h)
		want := porcupine.CheckOperations(model, operations(h))
		if want != (len(found) == 0) {
			t.Fatalf("history %d: porcupine says %t, and the check finds %v in\n%+v", seed, want, found, h)
		}
		if want {
			linearizable++
		}
	}
	if linearizable < histories/10 || linearizable > histories*9/10 {
		t.Errorf("%d of %d histories are linearizable: that shows little", linearizable, histories)
	}
}

// happened returns the history of a log that works: each operation takes effect at one moment between call and return.
func happened(rng *rand.Rand) History {
	h := History{Logs: map[string][]Record{"a": nil}}
	for moment := range time.Duration(2 + rng.IntN(6)) {
		at := 100 * moment
		call, end := at-time.Duration(rng.IntN(250)), at+time.Duration(rng.IntN(250))
		if rng.IntN(3) == 0 {
			h.Reads = append(h.Reads, Read{"a", call, end, int64(len(h.Logs["a"]))})
			continue
		}
		a := Append{Log: "a", Call: call, Return: end, Outcome: Acknowledged}
		for range 1 + rng.IntN(2) {
			text := fmt.Sprint(len(h.Logs["a"]))
			a.Texts = append(a.Texts, text)
			h.Logs["a"] = append(h.Logs["a"], Record{int64(len(h.Logs["a"])) + 1, text})
		}
		if a.Last = int64(len(h.Logs["a"])); rng.IntN(4) == 0 {
			a.Outcome, a.Last = Unknown, 0
		}
		h.Appends = append(h.Appends, a)
	}
	return h
}

// disturb changes the time or the result of an operation.
func disturb(rng *rand.Rand, h *History) {
	shift := time.Duration(rng.IntN(1000) - 500)
	switch n := rng.IntN(len(h.Appends) + len(h.Reads)); {
	case n < len(h.Appends):
		h.Appends[n].Call += shift
		h.Appends[n].Return += shift
	case rng.IntN(2) == 0:
		r := &h.Reads[n-len(h.Appends)]
		r.Call += shift
		r.Return += shift
	default:
		h.Reads[n-len(h.Appends)].End = int64(rng.IntN(len(h.Logs["a"]) + 1))
	}
}

// input is an operation: an append of this many records, or a read if it is 0.
type input int64

// model is a log of which only the length matters: an append returns the position of its last record, a read
// the position of the last record there is.
var model = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, in, output any) (bool, any) {
		end := state.(int64) + int64(in.(input))
		return output.(int64) == end, end
	},
}

// operations returns a history in the form that porcupine takes.
func operations(h History) (ops []porcupine.Operation) {
	at := map[string]int64{}
	for _, r := range h.Logs["a"] {
		at[r.Text] = r.Seq
	}
	for i, a := range h.Appends {
		end := int64(a.Return)
		if a.Outcome == Unknown {
			end = math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{
			ClientId: i, Input: input(len(a.Texts)), Call: int64(a.Call), Output: at[a.Texts[len(a.Texts)-1]], Return: end,
		})
	}
	for i, r := range h.Reads {
		ops = append(ops, porcupine.Operation{ClientId: len(h.Appends) + i, Input: input(0), Call: int64(r.Call), Output: r.End, Return: int64(r.Return)})
	}
	return ops
}
