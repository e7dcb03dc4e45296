package arbev1_test

import (
	"slices"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestWordsOfEnums(t *testing.T) {
	t.Parallel()
	for word, value := range map[string]arbev1.FailurePhase{
		"": 0, "dispatch": arbev1.FailurePhase_FAILURE_PHASE_DISPATCH, "result-collection": arbev1.FailurePhase_FAILURE_PHASE_RESULT_COLLECTION,
	} {
		got, ok := arbev1.FromWord[arbev1.FailurePhase](word)
		if back := arbev1.Word(value); got != value || !ok || back != word {
			t.Errorf("%q is %v (%v), and %v is %q", word, got, ok, value, back)
		}
	}
	if word := arbev1.Word(arbev1.ThreadStatus(99)); word != "99" {
		t.Errorf("a value of a newer server is %q", word)
	}
	for _, word := range []string{"99", "Running", "unspecified", "THREAD_STATUS_RUNNING", "not-there"} {
		if got, ok := arbev1.FromWord[arbev1.ThreadStatus](word); ok {
			t.Errorf("%q is %v", word, got)
		}
	}
	if want := []string{"pending", "live", "dead"}; !slices.Equal(arbev1.Words[arbev1.SandboxStatus](), want) {
		t.Errorf("the words are %q, want %q", arbev1.Words[arbev1.SandboxStatus](), want)
	}
}
