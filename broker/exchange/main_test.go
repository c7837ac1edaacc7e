package exchange_test

import (
	"os"
	"testing"

	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// patience and tick are how long tests wait, and how often they look.
const patience, tick = brokertest.Patience, brokertest.Tick

var cluster, endpoint, shared = brokertest.Cluster, brokertest.Endpoint, brokertest.Policy
