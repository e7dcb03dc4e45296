package daytona

import (
	"bytes"
	"context"
	"encoding/base64"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	api "github.com/daytonaio/daytona/libs/api-client-go"
	tools "github.com/daytonaio/daytona/libs/toolbox-api-client-go"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// runSeconds is the time limit after which Daytona ends a program that hangs.
const runSeconds = int32(2 * remote.MaxRun / 1e9)

// Run runs a program. Daytona takes a script, feeds it to a shell's input, and returns both outputs as one.
func (p *provider) Run(ctx context.Context, ref string, argv []string, input []byte) (output []byte, exitCode int, err error) {
	request := tools.NewExecuteRequest(script(argv, input))
	request.SetCwd("/")
	request.SetTimeout(runSeconds)
	err = p.inBox(ctx, ref, func(box toolbox) (*http.Response, error) {
		answer, response, err := box.process.ExecuteCommand(ctx).Request(*request).Execute()
		if err == nil {
			output, exitCode = []byte(answer.GetResult()), int(answer.GetExitCode())
		}
		return response, err
	})
	return output, exitCode, err
}

// script returns a shell script that runs a program with an input. The input is part of the script, so that it is never in an
// argument list: printf is a builtin of the shell.
func script(argv []string, input []byte) string {
	var s strings.Builder
	end := " </dev/null\n"
	if len(input) > 0 {
		s.WriteString("printf %s " + base64.StdEncoding.EncodeToString(input) + " | base64 -d | ")
		end = "\n"
	}
	for i, arg := range argv {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString("'" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
	}
	return s.String() + end
}

// Put writes a file. It does not use the generated client, which can only send a file of the server's disk.
func (p *provider) Put(ctx context.Context, ref, path string, content []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "file")
	if err == nil {
		if _, err = part.Write(content); err == nil {
			err = form.Close()
		}
	}
	if err != nil {
		return fault.From(err)
	}
	return p.inBox(ctx, ref, func(box toolbox) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, box.url+"/files/upload?path="+url.QueryEscape(path), bytes.NewReader(body.Bytes()))
		if err != nil {
			return nil, err
		}
		for name, value := range headers(p.cfg) {
			request.Header.Set(name, value)
		}
		request.Header.Set("Content-Type", form.FormDataContentType())
		response, err := p.client.Do(request)
		if err != nil {
			return response, err
		}
		if response.StatusCode >= 300 {
			return response, errRefused
		}
		return response, response.Body.Close()
	})
}

var errRefused = fault.New(fault.Unavailable, "Daytona did not take a file", "try again later")

// inBox calls do with the toolbox of a running box. If the box was stopped since it was last seen, inBox starts it and calls
// do again.
func (p *provider) inBox(ctx context.Context, ref string, do func(toolbox) (*http.Response, error)) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	box, err := p.toolbox(ctx, ref)
	if err != nil {
		return err
	}
	response, err := do(box)
	failed := toolboxError(ctx, response, err)
	if failed == nil || ctx.Err() != nil {
		return failed
	}
	// This answer cannot tell a stopped box from a deleted one, because a proxy may have given it in place of the toolbox.
	p.forget(ref)
	current, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	if err := failure(current); err != nil {
		return err
	}
	if current.GetState() == api.SANDBOXSTATE_STARTED {
		return failed
	}
	if box, err = p.toolbox(ctx, ref); err != nil {
		return err
	}
	response, err = do(box)
	return toolboxError(ctx, response, err)
}

// toolboxError is [answerError] for an answer of a toolbox, which is no evidence that its box is gone.
func toolboxError(ctx context.Context, response *http.Response, err error) error {
	if err = answerError(ctx, response, err); fault.CodeOf(err) == fault.NotFound || fault.CodeOf(err) == fault.Precondition {
		return unavailable(err)
	}
	return err
}

// toolbox returns the toolbox of a box, starting the box if necessary.
func (p *provider) toolbox(ctx context.Context, ref string) (toolbox, error) {
	p.mu.Lock()
	known, ok := p.toolboxes[ref]
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	box, err := p.awaitRunning(ctx, ref)
	if err != nil {
		return toolbox{}, err
	}
	c := tools.NewConfiguration()
	c.HTTPClient = p.client
	c.Servers = tools.ServerConfigurations{{URL: strings.TrimRight(box.ToolboxProxyUrl, "/") + "/" + box.Id}}
	for name, value := range headers(p.cfg) {
		c.AddDefaultHeader(name, value)
	}
	found := toolbox{url: c.Servers[0].URL, process: tools.NewAPIClient(c).ProcessAPI}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toolboxes[ref] = found
	return found, nil
}
