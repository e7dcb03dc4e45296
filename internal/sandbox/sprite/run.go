package sprite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/arbe-dev/arbe/internal/fault"
)

// The first byte of a message identifies its contents.
const (
	streamInput byte = iota
	streamOutput
	streamErrors
	streamExit
	streamInputEnd
)

const (
	// mostOutput limits the output of a program, in bytes.
	mostOutput = 16 << 20
	// inputPiece is the most input that one message carries, in bytes.
	inputPiece = 64 << 10
)

// Run runs a program. This wakes its box.
func (p *provider) Run(ctx context.Context, ref string, argv []string, input []byte) ([]byte, int, error) {
	if err := checkRef(ref); err != nil {
		return nil, 0, err
	}
	if err := p.leaveQuarantine(ctx, ref); err != nil {
		return nil, 0, err
	}
	conn, err := p.dial(ctx, ref, argv)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // the program may run on
	defer stop()
	sent := make(chan struct{})
	go func() { defer close(sent); send(conn, input) }()
	defer func() { conn.Close(); <-sent }()
	out, code, err := receive(conn)
	if err != nil && ctx.Err() != nil {
		err = fault.From(ctx.Err())
	}
	return out, code, err
}

// dial starts a program. Its arguments become part of the address, so they must not be secret.
func (p *provider) dial(ctx context.Context, ref string, argv []string) (*websocket.Conn, error) {
	query := url.Values{"cmd": argv, "path": argv[:1], "dir": {"/"}, "stdin": {"true"}}
	address := "ws" + strings.TrimPrefix(p.cfg.URL, "http") + "/v1/sprites/" + ref + "/exec?" + query.Encode()
	for left := p.cfg.ThrottleLimit; ; {
		conn, response, err := p.dialer.DialContext(ctx, address, http.Header{"Authorization": {"Bearer " + p.cfg.Token}})
		switch {
		case err == nil:
			conn.SetReadLimit(mostOutput)
			return conn, nil
		case ctx.Err() != nil:
			return nil, fault.From(ctx.Err())
		case response == nil:
			return nil, unavailable(err)
		}
		answer := answerOf(response)
		response.Body.Close()
		switch response.StatusCode {
		case http.StatusNotFound: // the answer does not say what was not found
			_, err := p.find(ctx, ref)
			if err == nil {
				err = unavailable(answer)
			}
			return nil, err
		case http.StatusTooManyRequests:
			if wait, passes := throttle(answer); passes && wait <= left {
				left -= wait
				if err := pause(ctx, wait); err != nil {
					return nil, fault.From(err)
				}
				continue
			}
		}
		return nil, explain(ctx, answer)
	}
}

// send sends the input. A failure ends the connection, which receive reports.
func send(conn *websocket.Conn, input []byte) {
	for len(input) > 0 {
		n := min(len(input), inputPiece)
		if conn.WriteMessage(websocket.BinaryMessage, append([]byte{streamInput}, input[:n]...)) != nil {
			return
		}
		input = input[n:]
	}
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte{streamInputEnd}) // the program may have ended
}

// receive returns a program's output and exit code. If the connection is lost before the exit code arrives, it is unknown how
// the program ended.
func receive(conn *websocket.Conn) ([]byte, int, error) {
	var out bytes.Buffer
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return nil, 0, unavailable(fmt.Errorf("the connection to a program was lost: %w", err))
		}
		if kind == websocket.TextMessage {
			var said struct {
				Type string `json:"type"`
				Code int    `json:"exit_code"`
			}
			if json.Unmarshal(message, &said) == nil && said.Type == "exit" {
				return out.Bytes(), said.Code, nil
			}
			continue
		}
		if len(message) == 0 {
			continue
		}
		switch message[0] {
		case streamOutput, streamErrors:
			if out.Len()+len(message) > mostOutput {
				return nil, 0, unavailable(errors.New("a program printed too much"))
			}
			out.Write(message[1:])
		case streamExit:
			if len(message) < 2 {
				return nil, 0, unavailable(errors.New("an exit code is missing"))
			}
			return out.Bytes(), int(message[1]), nil
		}
	}
}
