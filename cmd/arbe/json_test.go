package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// jsonCalls has one call of each verb, in an order that works. A word in braces stands for a value kept from an earlier call,
// and a word before < is an environment variable.
var jsonCalls = []struct {
	line  string
	stdin string
	// keep names the value of a field of the answer for later calls: "thread=id".
	keep string
	// stays means that the verb runs until Ctrl-C.
	stays bool
	// outcome means that its exit code is the state of a run.
	outcome bool
	// process means that it runs as a process of its own, as verbs that stay do. The others run in the test's process, because
	// the start of a process costs more than their work.
	process bool
}{
	{line: "version", process: true},
	{line: "help"},
	{line: "schema thread list"},
	{line: "completion bash"},
	{line: "completion zsh"},
	{line: "completion fish"},
	{line: "completion powershell"},
	{line: "config", process: true},
	{line: "secret-key create", process: true},
	{line: "secret-key create --out {dir}/secret", process: true},
	{line: "secret-key rotate", process: true},
	{line: "signing-key rotate", process: true},
	{line: "DATABASE_URL={database} migrate", process: true},
	{line: "DATABASE_URL={database} serve --data-dir {dir}/serve --addr 127.0.0.1:0 --drain-timeout 0s", stays: true},
	{line: "up --data-dir {dir}/up --addr 127.0.0.1:0 --drain-timeout 0s", stays: true},
	{line: "stream-proxy --upstream {host} --listen 127.0.0.1:0", stays: true},

	{line: "doctor", process: true},
	{line: "house create Second", keep: "house=id"},
	{line: "house rename {house} Other"},
	{line: "house list"},
	{line: "house limit 20"},
	{line: "house retention --threads 365 --dry-run"},
	{line: "house ask say"},
	{line: "house audit"},
	{line: "house create Third", keep: "third=id"},
	{line: "house delete -y {third}"},
	{line: "auth whoami", keep: "me=id"},
	{line: "auth status"},
	{line: "auth rename Ada"},
	{line: "login"},
	{line: "key create one", keep: "key=key"},
	{line: "login {host} --profile mine --with-token", stdin: "{key}\n"},
	{line: "profile list"},
	{line: "profile use mine"},
	{line: "logout mine"},
	{line: "notifications --quiet-hours 22:00-07:00 --time-zone Europe/Berlin"},
	{line: "session list"},
	{line: "session revoke -y --others"},
	{line: "key list"},
	{line: "key revoke -y one"},
	{line: "bot create helper", keep: "bot=id"},
	{line: "invite create Grace", keep: "invite=id"},
	{line: "invite list"},
	{line: "invite revoke -y {invite}"},
	{line: "member list"},
	{line: "member role {me} owner"},
	{line: "member remove -y {bot}"},
	{line: "bot create reviewer --instructions Review."},
	{line: "bot list"},
	{line: "bot tools"},
	{line: "bot runtimes"},
	{line: "bot show @reviewer"},
	{line: "bot edit @reviewer", stdin: "name: Reviewer\n"},
	{line: "bot delete -y @reviewer"},
	{line: "env create small", keep: "env=id"},
	{line: "env list"},
	{line: "env show small"},
	{line: "env allow small example.com"},
	{line: "env diagnose small"},
	{line: "env edit small", stdin: "name: smaller\n"},
	{line: "env delete -y smaller"},

	{line: "secret set LAB_KEY", stdin: "some-key\n"},
	{line: "secret list"},
	{line: "secret rotate"},
	{line: "model add lab https://models.example.com/v1 --key LAB_KEY --no-check"},
	{line: "model list"},
	{line: "model default lab/large"},
	{line: "model default --reset"},
	{line: "model fallback lab/large"},
	{line: "model remove -y lab"},
	{line: "secret delete -y LAB_KEY"},

	{line: "thread create --name talk", keep: "thread=id"},
	{line: "thread list"},
	{line: "thread show {thread}"},
	{line: "thread rename {thread} talks"},
	{line: "thread model {thread} --reset"},
	{line: "thread pin {thread}"},
	{line: "thread unpin {thread}"},
	{line: "thread tag {thread} one"},
	{line: "thread close {thread}"},
	{line: "thread reopen {thread}"},
	{line: "say {thread} hello"},
	{line: "say {thread} --edit hullo"},
	{line: "say {thread} --delete --yes"},
	{line: "say {thread} hello"},
	{line: "thread entries create {thread} hello", keep: "chat=id"},
	{line: "thread react {thread} {chat} 👍"},
	{line: "thread entries list {thread}"},
	{line: "thread entries list {thread} --follow", stays: true},
	{line: "thread list --watch", stays: true},
	{line: "thread fork {thread} --at 1"},
	{line: "x -t {thread} echo hello"},
	{line: "x -t {thread} --detach sleep 0.1", keep: "command=id"},
	{line: "wait -t {thread} {command}"},
	{line: "thread cancel {thread}"},
	{line: "ask -t {thread} what now?", keep: "turn=turn_id"},
	{line: "thread entries read {thread}"},
	{line: "thread export {thread}"},
	{line: "thread stop {thread}"},
	{line: "run --detach --agent @pi fix it", keep: "task=id"},
	{line: "run --detach --repo https://example.com/octocat/hello-world.git fix it"},
	{line: "thread stop {task}"},
	{line: "thread entries list {task} --type signal.thread.status_changed --follow", stays: true},
	{line: "thread result {task}", outcome: true},
	{line: "thread entries create {task} more", keep: "queued=id"},
	{line: "thread queue list {task}"},
	{line: "thread queue edit {task} {queued} less"},
	{line: "thread queue move {task} {queued} --last"},
	{line: "thread queue send {task} {queued} --later"},
	{line: "thread queue cancel {task} {queued}"},
	{line: "say {task} --queue later"},
	{line: "thread apply {task}"},
	{line: "thread branch {task} fix/it"},
	{line: "thread resume {task}"},
	{line: "thread stop {task}"},
	{line: "thread reconcile {task}"},
	{line: "thread prune --dry-run"},
	{line: "thread diagnose {task}", outcome: true},
	{line: "thread retry {thread} {turn}"},
	{line: "thread why {thread} {chat}"},
	{line: "thread answering {thread}"},
	{line: "thread answering {thread} --nobody"},
	{line: "port {thread} 0:3000", stays: true},
	{line: "thread show {thread}", keep: "sandbox=sandbox_id"},
	{line: "sandbox list"},
	{line: "sandbox accounts"},
	{line: "sandbox show {sandbox}"},
	{line: "sandbox logs {sandbox}"},
	{line: "sandbox delete -y {sandbox}"},
	{line: "bot create planner --model anthropic/planning --ask create_thread"},
	{line: "thread create --name plans", keep: "plans=id"},
	{line: "say {plans} @planner"},
	{line: "thread entries list {plans} --type signal.permission.asked --follow", stays: true},
	{line: "approval list -t {plans}", keep: "yes=id"},
	{line: "thread create --name others", keep: "others=id"},
	{line: "say {others} @planner"},
	{line: "thread entries list {others} --type signal.permission.asked --follow", stays: true},
	{line: "approval list -t {others}", keep: "no=id"},
	{line: "approval show {yes}"},
	{line: "inbox"},
	{line: "search hello"},
	{line: "thread seen {plans}"},
	{line: "thread mute {plans}"},
	{line: "thread unmute {plans}"},
	{line: "approve {yes}"},
	{line: "deny {no} later"},
	{line: "artifact put - -t {thread}", stdin: "text", keep: "artifact=id"},
	{line: "artifact list -t {thread}"},
	{line: "artifact get {artifact}"},
	{line: "artifact delete -y {artifact}"},
	{line: "token create {thread}", keep: "token=token"},
	{line: "ARBE_TOKEN={token} token renew"},
	{line: "token revoke -y {thread}"},
	{line: "thread delete -y {thread}"},
}

func TestEveryVerbPrintsJSON(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("no OCI runtime here")
	}
	_, models := modelServer(t)
	server := startUp(t, models...)
	home := t.TempDir()
	kept := map[string]string{"dir": t.TempDir(), "host": server.host, "house": "", "database": newDatabase(t, server, "second")}
	called := map[string]bool{}
	for _, call := range jsonCalls {
		fill := func(text string) string {
			return regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(text, func(name string) string { return kept[strings.Trim(name, "{}")] })
		}
		words := strings.Fields(fill(call.line))
		env := []string{
			"HOME=" + home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "ARBE_DATA_DIR=" + server.dataDir, "ARBE_HOUSE=" + kept["house"], "DATABASE_URL=", "ARBE_ADDR=",
			"ARBE_SANDBOX_MAX_DISK_MB=512",
		}
		for strings.Contains(words[0], "=") {
			env, words = append(env, words[0]), words[1:]
		}
		words = slices.Insert(words, slices.IndexFunc(append(words, "-"), func(w string) bool { return strings.HasPrefix(w, "-") }), "--json")
		verb, _, err := newRoot(&app{}).Find(words)
		if err != nil {
			t.Fatal(err)
		}
		called[verb.CommandPath()] = true
		var printed, said string
		var code int
		if call.process || call.stays {
			printed, said, code = arbeProcess(t, env, words, fill(call.stdin), call.stays)
		} else {
			printed, said, code = callArbe(t, env, words, fill(call.stdin))
		}
		if code != 0 && !(call.stays && code == exitInterrupted) && !(call.outcome && slices.Contains([]int{exitRunFailed, exitRunStalled, exitBotFailed, exitBotStopped}, code)) {
			t.Errorf("arbe %s ended with %d: %s", strings.Join(words, " "), code, said)
		}
		name, field, _ := strings.Cut(call.keep, "=")
		kept[name] = checkJSON(t, words, printed, field)
		checkSchema(t, verb.CommandPath(), printed)
	}
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		// arbe attach has no JSON, because its output is that of a terminal, and arbe cp prints only the copy.
		if cmd.CommandPath() == "arbe attach" || cmd.CommandPath() == "arbe cp" {
			return
		}
		if cmd.Runnable() && !cmd.HasSubCommands() && !called[cmd.CommandPath()] {
			t.Errorf("%s is missing in jsonCalls: nothing shows that it prints JSON", cmd.CommandPath())
		}
	})
}

func TestEveryHelpPrintsJSON(t *testing.T) {
	t.Parallel()
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		for _, words := range [][]string{append([]string{"help", "--json"}, path...), append(slices.Clone(path), "--help", "--json")} {
			var out, said bytes.Buffer
			a := &app{out: &out, err: &said, getenv: func(string) string { return "" }}
			if code := a.run(t.Context(), words); code != 0 || said.Len() > 0 {
				t.Errorf("arbe %s exits with %d and says %q", strings.Join(words, " "), code, said.String())
			}
			if got := checkJSON(t, words, out.String(), "name"); got != cmd.CommandPath() {
				t.Errorf("arbe %s is about %q, want %q", strings.Join(words, " "), got, cmd.CommandPath())
			}
		}
	})
}

// walk visits a command and all visible ones below it.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			walk(c, visit)
		}
	}
}

// callArbe runs a verb in this process, and returns what it prints, what it says and its exit code.
func callArbe(t *testing.T, env, args []string, stdin string) (printed, said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, err bytes.Buffer
	a := &app{in: strings.NewReader(stdin), out: &out, err: &err, getenv: func(name string) string {
		for _, variable := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(variable, name+"="); ok {
				return value
			}
		}
		return os.Getenv(name)
	}}
	code = a.run(ctx, args)
	return out.String(), err.String(), code
}

// arbeProcess runs arbe as a process, until Ctrl-C after its first line if it stays.
func arbeProcess(t *testing.T, env, args []string, stdin string, stays bool) (printed, said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "arbe", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Minute
	var errs lines
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(out)
	if stays {
		printed, _ = read.ReadString('\n') // if no line comes, the check fails
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
	}
	rest, err := io.ReadAll(read)
	if err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // the exit code says it
	return printed + string(rest), errs.String(), cmd.ProcessState.ExitCode()
}

// checkJSON checks that a call printed JSON. If a field is named, it returns the field of the object, or of the first object
// of a list.
func checkJSON(t *testing.T, args []string, printed, field string) (value string) {
	t.Helper()
	seen := false
	for d := json.NewDecoder(strings.NewReader(printed)); ; seen = true {
		var answer any
		if err := d.Decode(&answer); err == io.EOF && seen {
			return value
		} else if err != nil {
			t.Errorf("arbe %s printed no JSON (%v) but %.200q", strings.Join(args, " "), err, printed)
			return value
		}
		if list, ok := answer.([]any); ok && field != "" && len(list) > 0 {
			answer = list[0]
		}
		switch a := answer.(type) {
		case map[string]any:
			if value, _ = a[field].(string); field != "" && value == "" {
				t.Fatalf("arbe %s printed no %s: %s", strings.Join(args, " "), field, printed)
			}
		case []any:
			if field != "" {
				t.Fatalf("arbe %s printed an empty list", strings.Join(args, " "))
			}
		default:
			t.Errorf("arbe %s printed neither an object nor a list: %.200q", strings.Join(args, " "), printed)
		}
	}
}

// checkSchema checks that each value that a verb printed fits its schema, and has no fields that the schema lacks.
func checkSchema(t *testing.T, verb, printed string) {
	t.Helper()
	views := viewsOf[strings.TrimPrefix(verb, "arbe ")]
	if verb == "arbe" { // arbe help becomes a verb only when arbe runs
		views = viewsOf["help"]
	}
	if len(views) == 0 {
		t.Errorf("%s has no schema", verb)
	}
	for d := json.NewDecoder(strings.NewReader(printed)); ; {
		var value any
		if d.Decode(&value) != nil {
			return // checkJSON reports what is no JSON
		}
		var wrong []string
		for _, view := range views {
			text, err := json.Marshal(schemaOf(verb, []any{view}))
			var schema map[string]any
			if err := errors.Join(err, json.Unmarshal(text, &schema)); err != nil {
				t.Fatal(err)
			}
			problem := misfit(schema, value)
			if problem == "" {
				wrong = nil
				break
			}
			wrong = append(wrong, problem)
		}
		if len(wrong) > 0 {
			t.Errorf("%s prints a value that is not as its schema says: %s: %v", verb, strings.Join(wrong, "; "), value)
		}
	}
}

// misfit says where a value does not fit a schema; "" if it fits.
func misfit(schema map[string]any, value any) string {
	kinds, _ := schema["type"].([]any)
	if kind, one := schema["type"].(string); one {
		kinds = []any{kind}
	}
	is := map[string]bool{}
	switch v := value.(type) {
	case nil:
		is["null"] = true
	case string:
		is["string"] = true
	case bool:
		is["boolean"] = true
	case float64:
		is["number"], is["integer"] = true, v == math.Trunc(v)
	case []any:
		is["array"] = true
		items, _ := schema["items"].(map[string]any)
		for i, item := range v {
			if wrong := misfit(items, item); wrong != "" {
				return fmt.Sprintf("[%d]%s", i, wrong)
			}
		}
	case map[string]any:
		is["object"] = true
		fields, _ := schema["properties"].(map[string]any)
		others, open := schema["additionalProperties"].(map[string]any)
		for name, field := range v {
			known, ok := fields[name].(map[string]any)
			if !ok && !open && len(kinds) > 0 {
				return "." + name + " is not in the schema"
			}
			if !ok {
				known = others
			}
			if wrong := misfit(known, field); wrong != "" {
				return "." + name + wrong
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				return "." + name.(string) + " is missing"
			}
		}
	}
	if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(kind any) bool { return is[kind.(string)] }) {
		return fmt.Sprintf(" is not %v", kinds)
	}
	return ""
}

// newDatabase creates another database on a server's PostgreSQL, and returns its address.
func newDatabase(t *testing.T, server *upServer, name string) (url string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(server.dataDir, "database_url"))
	if err != nil {
		t.Fatal(err)
	}
	url = strings.TrimSpace(string(text))
	own, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(url, "/"+own.Database, "/"+name, 1)
}
