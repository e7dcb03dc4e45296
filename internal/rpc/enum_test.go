package rpc_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// The words of the domain, which the log and the command line use, are the names of the values.
func TestEveryWordOfTheDomainHasAValue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ domain, contract []string }{
		"thread": {words(thread.Open, thread.Closed, thread.Idle, thread.Running, thread.Completed, thread.Failed, thread.Cancelled), arbev1.Words[arbev1.ThreadStatus]()},
		"run":    {words(thread.Running, entry.RunCompleted, entry.RunFailed, entry.RunCancelled), arbev1.Words[arbev1.RunStatus]()},
		"phase":  {words(entry.PhaseDispatch, entry.PhaseExecution, entry.PhaseObservation, entry.PhaseResult), arbev1.Words[arbev1.FailurePhase]()},
		"box":    {words(sandbox.StatusPending, sandbox.StatusLive, sandbox.StatusDead), arbev1.Words[arbev1.SandboxStatus]()},
		"alive":  {words(sandbox.Live, sandbox.Gone, sandbox.Unknown), arbev1.Words[arbev1.SandboxLiveness]()},
		"asked":  {words(approval.Open, entry.Approved, entry.Denied, entry.Expired, entry.Withdrawn), arbev1.Words[arbev1.ApprovalState]()},
		"check":  {words(sandbox.CheckOK, sandbox.CheckWarning, sandbox.CheckFailed, sandbox.CheckSkipped), arbev1.Words[arbev1.CheckResult]()},
	} {
		if !slices.Equal(c.domain, c.contract) {
			t.Errorf("%s: the domain has %q, the contract %q", name, c.domain, c.contract)
		}
	}
}

func words[W ~string](all ...W) (texts []string) {
	for _, w := range all {
		texts = append(texts, string(w))
	}
	return texts
}

// notStatuses are fields whose names only look like statuses.
var notStatuses = []protoreflect.FullName{
	"arbe.v1.FinishProviderLoginRequest.state", // OAuth's
}

// A status has a fixed set of values. The payloads of entries are the JSON of the log, which has words.
func TestAStatusIsAnEnum(t *testing.T) {
	t.Parallel()
	found := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			fields := file.Messages().Get(i).Fields()
			for j := range fields.Len() {
				f := fields.Get(j)
				last := f.Name()[strings.LastIndex(string(f.Name()), "_")+1:]
				if file.Path() == "arbe/v1/payload.proto" || !slices.Contains([]protoreflect.Name{"status", "state", "phase", "liveness"}, last) || slices.Contains(notStatuses, f.FullName()) {
					continue
				}
				if found++; f.Enum() == nil {
					t.Errorf("%s is no enum", f.FullName())
				}
			}
		}
		return true
	})
	if found < 8 {
		t.Errorf("it looked at only %d fields", found)
	}
}

func TestAValueThatAnEnumDoesNotHave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const threads = "is not one of THREAD_STATUS_OPEN, THREAD_STATUS_CLOSED"
	update, list := arbev1connect.ThreadServiceUpdateThreadProcedure, arbev1connect.ThreadServiceListThreadsProcedure
	for name, c := range map[string]struct{ procedure, body, says string }{
		"is refused by name":               {list, `{"houseId": "h", "status": "running"}`, `status: "running" ` + threads + `, THREAD_STATUS_IDLE`},
		"is refused by number":             {list, `{"houseId": "h", "status": 99}`, `status: 99 ` + threads + `, THREAD_STATUS_IDLE`},
		"is refused in a message":          {arbev1connect.NotificationServiceUpdateNotificationsProcedure, `{"settings": {"digest": "WEEKLY"}}`, `digest: "WEEKLY" is not one of MAIL_DIGEST_OFF, MAIL_DIGEST_HOURLY, MAIL_DIGEST_DAILY`},
		"is refused if the field forbids":  {update, `{"id": "t", "status": "THREAD_STATUS_RUNNING"}`, `status: THREAD_STATUS_RUNNING ` + threads},
		"is refused if it is unspecified":  {update, `{"id": "t", "status": "THREAD_STATUS_UNSPECIFIED"}`, `status: THREAD_STATUS_UNSPECIFIED ` + threads},
		"is refused if a field needs one":  {arbev1connect.ApprovalServiceAnswerApprovalProcedure, `{"threadId": "t", "id": "a"}`, `verdict: VERDICT_UNSPECIFIED is not one of VERDICT_APPROVE, VERDICT_DENY`},
		"is refused in a message, unnamed": {arbev1connect.NotificationServiceUpdateNotificationsProcedure, `{"settings": {}}`, `digest: MAIL_DIGEST_UNSPECIFIED is not one of MAIL_DIGEST_OFF`},
	} {
		t.Run(name, func(t *testing.T) {
			b.post(t, c.procedure, "application/json", b.ada.key, []byte(c.body)).refused(t, http.StatusBadRequest, connect.CodeInvalidArgument, c.says)
		})
	}
}
