// Command provider is an OpenID Connect provider for tests: the example of zitadel's library, with users and groups from files.
// It prints its address, and reads the address to which it sends browsers back.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// grouped adds the groups of users to what the provider says about them. The file is read each time, so that tests can change it.
type grouped struct {
	*storage.Storage
	file string
}

func (g grouped) add(info *oidc.UserInfo) {
	var groups map[string][]string
	text, err := os.ReadFile(g.file)
	if err == nil {
		err = json.Unmarshal(text, &groups)
	}
	if err != nil {
		slog.Error("groups", "error", err)
	}
	info.AppendClaims("groups", groups[info.Subject])
}

// SetUserinfoFromToken implements op.Storage.
func (g grouped) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	err := g.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
	g.add(info)
	return err
}

var _ op.Storage = grouped{}

func main() {
	users, err := storage.StoreFromFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	issuer := "http://" + listener.Addr().String()
	fmt.Println(issuer)
	var redirect string
	if _, err := fmt.Scanln(&redirect); err != nil {
		panic(err)
	}
	storage.RegisterClients(storage.WebClient("arbe", "the client's secret", redirect))
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	router := exampleop.SetupServer(issuer, grouped{storage.NewStorage(users), os.Args[2]}, logger, false)
	panic(http.Serve(listener, router))
}
