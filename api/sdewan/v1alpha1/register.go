package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "batch.sdewan.akraino.org", Version: "v1alpha1"}

// AddToScheme adds this package's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Mwan3Policy{}, &Mwan3PolicyList{},
		&Mwan3Rule{}, &Mwan3RuleList{},
		&FirewallZone{}, &FirewallZoneList{},
		&FirewallRule{}, &FirewallRuleList{},
		&FirewallSNAT{}, &FirewallSNATList{},
		&FirewallDNAT{}, &FirewallDNATList{},
		&FirewallForwarding{}, &FirewallForwardingList{},
		&IpsecProposal{}, &IpsecProposalList{},
		&IpsecSite{}, &IpsecSiteList{},
		&IpsecHost{}, &IpsecHostList{},
		&NetworkFirewallRule{}, &NetworkFirewallRuleList{},
		&CNFNAT{}, &CNFNATList{},
		&CNFRoute{}, &CNFRouteList{},
		&CNFRouteRule{}, &CNFRouteRuleList{},
		&CNFService{}, &CNFServiceList{},
		&CNFStatus{}, &CNFStatusList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
