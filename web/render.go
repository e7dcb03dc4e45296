package web

import (
	"bytes"
	"context"

	"github.com/a-h/templ"
)

func rendered(ctx context.Context, c templ.Component) ([]byte, error) {
	var b bytes.Buffer
	err := c.Render(ctx, &b)
	return b.Bytes(), err
}
