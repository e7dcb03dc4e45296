// Command othermodule uses arbe's Go client as other people's programs do: from its own module, because the client is a
// promise to other modules. It creates a thread, writes lines to it, and prints what it reads from it, even if the server is
// killed meanwhile. It writes the last line when its stdin has ended.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func main() {
	log.SetFlags(0)
	lines, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	c := arbe.New(os.Getenv("ARBE_HOST"), os.Getenv("ARBE_TOKEN"))
	houses, err := c.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{})
	if err != nil {
		log.Fatal(err)
	}
	created, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: houses.GetHouses()[0].GetId()})
	if err != nil {
		log.Fatal(err)
	}
	thread := created.GetThread().GetId()
	go say(ctx, c, thread, lines)

	seen := 0
	lost := arbe.OnDisconnect(func(err error, _ time.Duration) { log.Printf("disconnected: %v", err) })
	for event, err := range c.Tail(ctx, thread, 0, lost) {
		if err != nil {
			log.Fatal(err)
		}
		if e := event.GetEntry(); e != nil {
			var said struct{ Text string }
			if err := json.Unmarshal([]byte(e.GetPayload()), &said); err != nil {
				log.Fatal(err)
			}
			fmt.Println(e.GetSeq(), said.Text)
			if seen++; seen == lines {
				return
			}
		}
	}
}

// say writes each line until the server accepts it. Repeating a line is harmless, because the line keeps its id.
func say(ctx context.Context, c *arbe.Client, thread string, lines int) {
	for n := 1; n <= lines; {
		if n == lines {
			_, _ = io.Copy(io.Discard, os.Stdin) // a pipe
		}
		line := &arbev1.AppendRequest{
			ThreadId: thread, Id: fmt.Sprintf("line-%d", n), Type: "chat", Payload: fmt.Sprintf(`{"text":"line %d"}`, n),
		}
		switch _, err := c.Entries.Append(ctx, line); {
		case err == nil:
			n++
		case connect.IsWireError(err) && connect.CodeOf(err) != connect.CodeUnavailable:
			log.Fatalf("%v; %s", err, arbe.Next(err))
		default:
			time.Sleep(50 * time.Millisecond)
		}
	}
}
