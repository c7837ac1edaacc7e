// Command subctl joins Kubernetes clusters into one network.
package main

import (
	"os"

	"subctl/cmd"
)

func main() { os.Exit(cmd.Main()) }
