package catalog

import (
	"cmp"
	"fmt"
	"maps"

	submarinerv1 "subctl/api/submariner/v1"
)

// Unreached returns the reason why a gateway does not use a cable to another cluster, as far as
// it reports; empty if it does.
func Unreached(gw submarinerv1.Gateway, other string, want Cable) string {
	found := false
	for _, c := range gw.Status.Connections {
		if c.Endpoint.ClusterID != other {
			continue
		}
		found = true
		connected := c.Status == submarinerv1.Connected
		switch {
		case want.Err != nil && connected:
			return fmt.Sprintf("still connected by %s", CableDriver(c))
		case want.Err != nil:
			continue
		case CableDriver(c) != want.Driver && (c.DriverReason == "" || CableDriver(c) != c.DesiredDriver) ||
			c.Policy != want.Policy || !maps.Equal(c.PolicySettings, want.Settings):
			return cmp.Or(c.StatusMessage, fmt.Sprintf("uses %s (%s)", CableDriver(c), Decider(c.Policy)))
		case !connected:
			return fmt.Sprintf("%s: %s", c.Status, c.StatusMessage)
		}
	}
	if !found && want.Err == nil {
		return "no connection to cluster " + other
	}
	return ""
}

// CableDriver returns the driver of a connection: the driver in use or, if there is no cable,
// the driver that should be in use; empty if that is not decided yet. The agents of upstream
// report only the driver of the endpoint. A refused connection has no address.
func CableDriver(c submarinerv1.Connection) string {
	if c.Status == submarinerv1.ConnectionError && c.UsingIP == "" {
		return c.Driver
	}
	return cmp.Or(c.Driver, c.Endpoint.Backend)
}

// Decider returns the name, in messages, of the policy that decides; empty means no policy.
func Decider(name string) string { return cmp.Or(name, "the clusters' own default") }
