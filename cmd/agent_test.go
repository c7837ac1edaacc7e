package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
)

// A role has a subcommand of "subctl agent", and the flags of its parts.
func TestAgentRoles(t *testing.T) {
	c := newAgent(&globals{})
	for _, role := range mesh.Roles() {
		sub, _, err := c.Find([]string{role.Name})
		require.NoError(t, err)
		require.Equal(t, role.Name, sub.Name())
	}
	for _, test := range []struct {
		part mesh.Part
		flag string
	}{{mesh.Election, "lease-duration"}, {mesh.KeyRing, "secrets"}, {mesh.Exchange, "broker-secret"}} {
		with := newAgentRole(&globals{}, mesh.Role{Name: "toy", MetricsPort: 32799, Parts: []mesh.Part{test.part}})
		require.NotNil(t, with.Flag(test.flag), "%s", test.part)
		without := newAgentRole(&globals{}, mesh.Role{Name: "toy", MetricsPort: 32799})
		require.Nil(t, without.Flag(test.flag), "%s", test.part)
		require.Equal(t, ":32799", without.Flag("metrics-address").DefValue)
	}
}
