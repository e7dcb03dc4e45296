package web

import (
	"testing"
	"time"
)

func TestElapsedText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m 0s", 75 * time.Second: "1m 15s",
		time.Hour - time.Second: "59m 59s", time.Hour: "1h 0m", 49*time.Hour + 59*time.Second: "49h 0m",
	} {
		if got := elapsedText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestPast(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Minute: "just now", 0: "just now", 90 * time.Second: "1m ago", 150 * time.Minute: "2h ago", 50 * time.Hour: "2d ago",
	} {
		if got := past(time.Now().Add(-d)); got != want {
			t.Errorf("%v before now is %q, want %q", d, got, want)
		}
	}
	long := time.Now().AddDate(-2, 0, 0)
	if got := past(long); got != long.Format("2 Jan 2006") {
		t.Errorf("two years ago is %q", got)
	}
}
