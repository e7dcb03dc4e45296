package daytona

import tools "github.com/daytonaio/daytona/libs/toolbox-api-client-go"

// toolbox is the address at which a box takes commands.
type toolbox struct {
	url     string
	process tools.ProcessAPI
}
