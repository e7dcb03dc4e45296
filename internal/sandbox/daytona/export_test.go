package daytona

import api "github.com/daytonaio/daytona/libs/api-client-go"

// PriceAt returns the price of an hour of a box of a service.
func PriceAt(url string, cpus, memory, disk, gpus float32) int64 {
	p := &provider{cfg: Config{URL: url}}
	return p.meterOf(&api.Sandbox{Cpu: cpus, Memory: memory, Disk: disk, Gpu: gpus}).HourlyMicros
}

// DefaultURL is the address of Daytona's own service.
const DefaultURL = defaultURL
