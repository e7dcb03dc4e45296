package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// answersWithin limits how long a server takes to report its state. maxClockSkew is how far its clock, which it reports in
// whole seconds, may differ from this machine's.
const (
	answersWithin = 10 * time.Second
	maxClockSkew  = 5 * time.Second
)

// finding is the result of examining one part of an installation, and what to do about it.
type finding struct {
	Part   string  `json:"part"`
	Status verdict `json:"status"`
	Says   string  `json:"says"`
	Next   string  `json:"next,omitempty"`
}

// verdict is the state of a part.
type verdict string

const (
	fine    verdict = "ok"
	warning verdict = "warning"
	problem verdict = "problem"
	untried verdict = "untried"
)

// examination examines a server, using only the calls that every member may make.
type examination struct {
	app    *app
	client *arbe.Client
	target target
	house  string
	// usable means that the server answers and accepts the credential.
	usable bool
}

// failed returns the finding for a part with an error, in the words that verbs use.
func (e *examination) failed(part string, err error) finding {
	f := e.app.explain(err)
	return finding{part, problem, f.Message, f.Next}
}

// inHouse returns the house to examine, or a finding that asks for its name.
func (e *examination) inHouse(ctx context.Context, part string) (string, []finding) {
	id, err := e.app.inHouse(ctx, e.client, e.house)
	if err != nil {
		f := e.failed(part, err)
		f.Status = untried
		return "", []finding{f}
	}
	return id, nil
}

// server examines whether the server answers, its clock, the credential, and the models of the house.
func (e *examination) server(ctx context.Context) (found []finding) {
	ready, date, took, err := e.ready(ctx)
	switch {
	case err != nil:
		next := "start it with arbe up or arbe serve, or name another with --host"
		if !e.target.isLocal() {
			next = "check the address (arbe auth status shows where it comes from), that the server runs, and its proxy"
		}
		return []finding{{Part: "server", Status: problem, Says: "no arbe server answers at " + e.target.Host + ": " + err.Error(), Next: next}}
	case ready != "ok":
		found = append(found, finding{Part: "server", Status: problem, Says: e.target.Host + " says: " + ready, Next: "its operator can find the cause in its log, or with arbe doctor on its machine"})
	default:
		found = append(found, finding{Part: "server", Status: fine, Says: fmt.Sprintf("%s answers in %s", e.target.Host, took.Round(10*time.Microsecond))})
	}
	if skew := time.Since(date) - took/2; !date.IsZero() && skew.Abs() > maxClockSkew+took {
		found = append(found, finding{Part: "clock here", Status: problem, Says: fmt.Sprintf("the clocks of this machine and of the server differ by %s", skew.Abs().Round(time.Second)),
			Next: "set both clocks by NTP (timedatectl set-ntp true)"})
	}
	who, err := e.client.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
	if err != nil {
		return append(found, e.failed("credential", err))
	}
	e.usable = true
	found = append(found, finding{Part: "credential", Status: fine, Says: fmt.Sprintf("you are %s (%s), by %s", who.GetAgent().GetName(), export.ViewAgent(who.GetAgent()).Kind, e.target.Credential)})
	return append(found, e.models(ctx)...)
}

// ready asks the server for its state and its time.
func (e *examination) ready(ctx context.Context) (line string, date time.Time, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.target.Host+"/readyz", nil)
	if err != nil {
		return "", date, 0, err
	}
	began := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", date, 0, err
	}
	defer res.Body.Close()
	took = time.Since(began)
	text, err := io.ReadAll(io.LimitReader(res.Body, 4000))
	line = strings.TrimSpace(string(text))
	if err == nil && res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable || strings.HasPrefix(line, "<") {
		err = fmt.Errorf("/readyz answers %s", res.Status)
	}
	date, _ = http.ParseTime(res.Header.Get("Date")) // without a date, its clock is unknown
	return line, date, took, err
}

// models examines which models the house has, as the server sees them.
func (e *examination) models(ctx context.Context) (found []finding) {
	house, without := e.inHouse(ctx, "models of the house")
	if without != nil {
		return without
	}
	list, err := e.client.Models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: house})
	if err != nil {
		return []finding{e.failed("models of the house", err)}
	}
	for _, endpoint := range list.GetEndpoints() {
		if why := endpoint.GetProblem(); why != "" {
			found = append(found, finding{Part: "models of " + endpoint.GetName(), Status: warning, Says: why, Next: "an owner can set a working key with arbe secret set, or remove the server with arbe model remove"})
		}
	}
	if list.GetProblem() != "" {
		return append(found, finding{Part: "models of the house", Status: warning, Says: list.GetProblem(), Next: "arbe secret set ANTHROPIC_API_KEY gives the house a key; arbe model default chooses one of arbe model list"})
	}
	return append(found, finding{Part: "models of the house", Status: fine, Says: fmt.Sprintf("bots use %s; models are found in %d places", list.GetDefaultModel(), len(list.GetEndpoints()))})
}

// sandboxWithin limits how long a sandbox may take to start and to answer.
const sandboxWithin = 3 * time.Minute

// sandbox examines whether a sandbox of the house's default environment starts, and whether programs in it reach the server.
func (e *examination) sandbox(ctx context.Context) []finding {
	const part = "sandbox"
	if !e.usable {
		return nil // the problem was already found
	}
	house, without := e.inHouse(ctx, part)
	if without != nil {
		return without
	}
	door, err := e.door(ctx, house)
	if err != nil {
		return []finding{e.failed(part, err)}
	}
	created, err := e.client.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house, Name: "arbe doctor"})
	if err != nil {
		return []finding{e.failed(part, err)}
	}
	thread := created.GetThread().GetId()
	defer e.remove(context.WithoutCancel(ctx), thread)
	ctx, cancel := context.WithTimeout(ctx, sandboxWithin)
	defer cancel()
	return e.fromInside(ctx, thread, door)
}

// door returns the address of the stream door that programs use in sandboxes of the house's default environment.
func (e *examination) door(ctx context.Context, house string) (string, error) {
	h, err := e.client.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house})
	if err != nil {
		return "", err
	}
	if h.GetHouse().GetDefaultEnvironmentId() == "" {
		return "", fault.New(fault.Precondition, "the house has no default environment", "an owner can create one: arbe env create NAME")
	}
	env, err := e.client.Environments.GetEnvironment(ctx, &arbev1.GetEnvironmentRequest{Id: h.GetHouse().GetDefaultEnvironmentId()})
	if err != nil {
		return "", err
	}
	page, err := e.client.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: house, PageSize: 1})
	if err != nil {
		return "", err
	}
	base := "http://arbe.internal"
	if first(env.GetEnvironment().GetConfig().GetDriver(), page.GetDefaultDriver()) != "local" {
		base = e.target.URL
	}
	return base + "/api/stream/arbe-doctor", nil
}

// fromInside runs a program in the sandbox that asks the door for a stream without a credential. An arbe server refuses that
// with 401. Other servers are unlikely to.
func (e *examination) fromInside(ctx context.Context, thread, door string) []finding {
	const line = `if command -v curl >/dev/null; then curl -sS -m 20 -o /dev/null -w '%%{http_code}' '%[1]s' 2>&1
elif command -v wget >/dev/null; then wget -T 20 -t 1 -S -O /dev/null '%[1]s' 2>&1 | sed -n 's/.*HTTP[^ ]* \([0-9]*\).*/\1/p' | tail -n 1
else echo none; fi`
	var out strings.Builder
	began := time.Now()
	result, err := e.client.Run(ctx, &arbev1.RunCommandRequest{
		Id: uuid.NewString(), ThreadId: thread, Timeout: durationpb.New(time.Minute), What: &arbev1.RunCommandRequest_Command{Command: fmt.Sprintf(line, door)},
	}, arbe.WithOutput(&out, &out))
	if err != nil {
		return []finding{e.failed("sandbox", err)}
	}
	started := finding{Part: "sandbox", Status: fine, Says: "a sandbox started and ran a command in " + time.Since(began).Round(10*time.Millisecond).String()}
	said := strings.TrimSpace(out.String())
	switch {
	case result.Error != "":
		return []finding{{Part: "sandbox", Status: problem, Says: result.Error, Next: "the server's log says more; arbe env show NAME shows the environment of the sandbox"}}
	case said == "401":
		return []finding{started, {Part: "door from a sandbox", Status: fine, Says: "programs in a sandbox reach the server at " + strings.TrimSuffix(door, "/api/stream/arbe-doctor")}}
	case said == "none":
		return []finding{started, {Part: "door from a sandbox", Status: untried, Says: "the sandbox has neither curl nor wget"}}
	}
	next := "local sandboxes need nf_tables to reach the server (modprobe nf_tables), and a runtime that shares the machine's kernel"
	if !strings.Contains(door, "arbe.internal") {
		next = "set public_url to an address that the provider's sandboxes reach, or run arbe stream-proxy at one"
	}
	return []finding{started, {Part: "door from a sandbox", Status: problem, Says: door + " does not answer as an arbe server does: " + said, Next: next}}
}

// remove deletes the thread and its sandbox. If it cannot delete one, that stays visible in the house under its name.
func (e *examination) remove(ctx context.Context, thread string) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	if t, err := e.client.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: thread}); err == nil && t.GetThread().GetSandboxId() != "" {
		_, _ = e.client.Sandboxes.DestroySandbox(ctx, &arbev1.DestroySandboxRequest{Id: t.GetThread().GetSandboxId(), Discard: true})
	}
	if _, err := e.client.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: thread}); err != nil {
		e.app.say("the thread %s could not be deleted: %v", thread, err)
	}
}
