package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/look"
)

// show gateways tells why fewer gateway nodes work than join was asked for, also if no gateway has
// ever reported.
func TestShowFewGateways(t *testing.T) {
	few := metav1.Condition{
		Type: v1alpha1.ConditionGateways, Status: metav1.ConditionFalse,
		Message: "0 of 1 gateway node works; there is no other node: add one",
	}
	enough := metav1.Condition{Type: v1alpha1.ConditionGateways, Status: metav1.ConditionTrue, Message: "enough"}
	site := func(conditions ...metav1.Condition) look.Site {
		return look.Site{Submariner: &v1alpha1.Submariner{Status: v1alpha1.SubmarinerStatus{Conditions: conditions}}}
	}
	require.Equal(t, []string{few.Message}, gatewayTrouble(site(few), nil))
	require.Equal(t, []string{look.NoGateways}, gatewayTrouble(site(enough), nil))
	require.Equal(t, []string{look.NoGateways}, gatewayTrouble(site(), nil))
}
