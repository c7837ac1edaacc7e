package report

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// A member that has thousands of its objects refused does not fill the report.
func TestRefusalsOfMany(t *testing.T) {
	var refused []mesh.Refusal
	for i := range 3 * maxRefused {
		refused = append(refused,
			mesh.Refusal{
				Spec: submarinerv1.EndpointSpec{CableName: fmt.Sprint(i), ClusterID: "west"},
				Err:  errors.New("no"),
			})
	}
	texts := Refusals(refused, &role.ExchangeStatus{Refused: []string{"Endpoint x"}, RefusedMore: 7})
	require.Len(t, texts, 1+maxRefused+1)
	require.Equal(t, "158 objects of other clusters are not used; these are the first", texts[0])
}
