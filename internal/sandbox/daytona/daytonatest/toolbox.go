//go:build linux

package daytonatest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// toolbox answers a request to the program that runs in each box.
func (d *Double) toolbox(w http.ResponseWriter, r *http.Request, account, id, call string) {
	d.mu.Lock()
	b, ok := d.boxes[id]
	running := ok && b.account == account && b.state != "stopped" && b.state != "archived" && b.state != "destroying"
	d.mu.Unlock()
	if !running { // the proxy cannot tell stopped from deleted
		refuse(w, http.StatusBadRequest, errStopped.Error())
		return
	}
	switch call {
	case "POST /process/execute":
		execute(w, r, b.machine)
	case "POST /files/upload":
		file, _, err := r.FormFile("file")
		if err == nil {
			defer file.Close()
			err = b.machine.Write(r.Context(), hostbox.User, r.URL.Query().Get("path"), file)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		reply(w, http.StatusOK, map[string]any{})
	default:
		refuse(w, http.StatusNotFound, "404 page not found")
	}
}

// execute runs a script as the input of a shell. It returns both outputs as one text, and the code -1 for an end by a signal.
// If the caller disconnects, the script runs on until its time limit.
func execute(w http.ResponseWriter, r *http.Request, machine *hostbox.Box) {
	var request struct {
		Command string            `json:"command"`
		Cwd     string            `json:"cwd"`
		Envs    map[string]string `json:"envs"`
		Timeout int               `json:"timeout"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Command == "" {
		refuse(w, http.StatusBadRequest, "command")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Duration(max(request.Timeout, 10))*time.Second)
	defer cancel()
	cmd, err := machine.Command(ctx, hostbox.User, "/bin/sh")
	if err != nil {
		refuse(w, http.StatusBadRequest, errStopped.Error())
		return
	}
	cmd.Stdin = strings.NewReader(request.Command)
	for name, value := range request.Envs {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, "DAYTONA_SANDBOX_ID=double")
	out, err := cmd.CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		refuse(w, http.StatusRequestTimeout, "command execution timeout")
	case failed:
		reply(w, http.StatusOK, map[string]any{"exitCode": exit.ExitCode(), "result": string(out)})
	case err != nil:
		refuse(w, http.StatusInternalServerError, err.Error())
	default:
		reply(w, http.StatusOK, map[string]any{"exitCode": 0, "result": string(out)})
	}
}
