package sprite

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Sprites pauses a box that nobody uses from outside for half a minute, whatever runs in it, unless it has a task. Tasks exist only
// inside: the box makes its own, through a socket of Sprites there. A task ends by itself.
const (
	taskSocket = "/.sprite/api.sock"
	taskURL    = "http://sprite/v1/tasks/arbe"
	// longestTask is the longest time that Sprites allows.
	longestTask = time.Hour
)

// askTasks sends the request with the method $0 and the body $1, and prints the status of the answer.
const askTasks = `exec curl -sS -m 20 --unix-socket ` + taskSocket + ` -o /dev/null -w '%{http_code}' -X "$0" -H 'Content-Type: application/json' ${1:+-d "$1"} ` + taskURL

// KeepAwake gives a box a task, or takes it away.
func (p *provider) KeepAwake(ctx context.Context, ref string, least time.Duration) error {
	argv := []string{"/bin/sh", "-c", askTasks, "DELETE"}
	if least > 0 {
		seconds := int(min(least, longestTask).Round(time.Second) / time.Second)
		argv = []string{"/bin/sh", "-c", askTasks, "PUT", fmt.Sprintf(`{"expire":"%ds"}`, seconds)}
	}
	out, code, err := p.Run(ctx, ref, argv, nil)
	if err != nil {
		return err
	}
	status, _ := strconv.Atoi(strings.TrimSpace(string(out))) // 0 is no success
	if code == 0 && (status/100 == 2 || least == 0 && status == 404) {
		return nil
	}
	return fault.New(fault.Precondition, "the Sprite does not take a task, which would keep it awake", "check that it has curl, and try again later").Because(fmt.Errorf("exit code %d: %.200s", code, out))
}
