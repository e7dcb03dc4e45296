package arbe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxAnswer limits an answer other than an artifact's bytes, because it is held in memory.
const maxAnswer = 1 << 20

// PutArtifact creates an artifact and streams all bytes of content into it. It ignores the content and the byte_ref of
// req, because content has the bytes. To make retries harmless, choose an id in req and send the same content again. The
// returned artifact has a different id, which the server derives from the chosen one.
func (c *Client) PutArtifact(ctx context.Context, req *arbev1.CreateArtifactRequest, content io.Reader) (*arbev1.Artifact, error) {
	query := url.Values{}
	req.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch field.Name() {
		case "content", "byte_ref":
		default:
			query.Set(string(field.Name()), value.String())
		}
		return true
	})
	// The server is asked first, so that content is not sent if the server refuses the request anyway.
	res, err := c.artifact(ctx, http.MethodPost, "", query, content, http.Header{"Expect": {"100-continue"}})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	made := &arbev1.Artifact{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, made); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return made, nil
}

// OpenArtifact reads an artifact's bytes from an offset on. If the bytes are cut off, the error is not [io.EOF], so that the
// caller does not take a part for the whole. The caller closes the reader.
func (c *Client) OpenArtifact(ctx context.Context, id string, offset int64) (io.ReadCloser, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	res, err := c.artifact(ctx, http.MethodGet, id, nil, nil, header)
	if err != nil {
		return nil, err
	}
	// A server or a proxy may ignore Range. The bytes would then be those from the beginning.
	if offset > 0 && res.StatusCode != http.StatusPartialContent {
		res.Body.Close()
		return nil, connect.NewError(connect.CodeOutOfRange, errors.New("the server does not read from there"))
	}
	return res.Body, nil
}

// artifact sends a request about an artifact's bytes. With an empty id, it uses the path that creates artifacts. Errors are
// [*connect.Error]s like those of the services, so that callers can handle both alike.
func (c *Client) artifact(ctx context.Context, method, id string, query url.Values, body io.Reader, header http.Header) (*http.Response, error) {
	address := c.url + "/api/artifact/" + url.PathEscape(id)
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	req.Header = header
	c.bearer.show(req.Header)
	res, err := c.http.Do(req)
	if err != nil {
		code := connect.CodeUnavailable
		if ctx.Err() != nil {
			code = connect.CodeCanceled
		}
		return nil, connect.NewError(code, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, refusal(res)
}

// refusal returns the error in an answer that is not from one of the services.
func refusal(res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	var answer struct {
		Error struct{ Code, Reason, Message, Next, Reference string }
	}
	if json.Unmarshal(bytes.TrimSpace(text), &answer) != nil || answer.Error.Code == "" {
		return connect.NewError(connect.CodeUnknown, fmt.Errorf("the server answers %s", res.Status))
	}
	code := connect.CodeUnknown
	_ = code.UnmarshalText([]byte(answer.Error.Code)) // ignored: otherwise a new code would hide the error
	failure := connect.NewWireError(code, errors.New(answer.Error.Message))
	failure.Meta().Set(arbev1.NextHeader, answer.Error.Next)
	failure.Meta().Set(arbev1.ReasonHeader, answer.Error.Reason)
	failure.Meta().Set(arbev1.RequestHeader, res.Header.Get(arbev1.RequestHeader))
	failure.Meta().Set(arbev1.ReferenceHeader, answer.Error.Reference)
	return failure
}
