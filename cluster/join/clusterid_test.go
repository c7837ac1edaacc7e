package join_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cluster/join"
)

func TestSuggestID(t *testing.T) {
	for name, want := range map[string]string{
		"west":             "west",
		"Prod_1":           "prod-1",
		"arn:aws:eks:eu/x": "arn-aws-eks-eu-x",
		"-a-":              "0a0",
		"kind-c1.local":    "kind-c1-local",
		"":                 "",
	} {
		require.Equal(t, want, join.SuggestID(name))
	}
}
