package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNFRouteRule selects a table of routes for packets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.metadata.labels.sdewanPurpose`
// +kubebuilder:printcolumn:name="In Sync",type=boolean,JSONPath=`.status.inSync`
// +kubebuilder:printcolumn:name="Applied",type=date,JSONPath=`.status.appliedTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].message`,priority=1
// +kubebuilder:validation:XValidation:rule=`!self.metadata.name.matches('[A-Z_]')`,messageExpression="'write the name ' + self.metadata.name.lowerAscii().replace('_', '-')"
type CNFRouteRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CNFRouteRuleSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *CNFRouteRule) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *CNFRouteRule) RulePriority() Priority { return r.Spec.Priority }

// CNFRouteRuleList is a list of CNFRouteRule objects.
//
// +kubebuilder:object:root=true
type CNFRouteRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNFRouteRule `json:"items"`
}

// CNFRouteRuleSpec selects packets; an absent field matches all.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.fwmark) || !string(self.fwmark).matches('^(0|0x0+)(/.*)?$')`,message="fwmark 0 matches every packet: use another mark, or leave it out"
type CNFRouteRuleSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// Src matches the source address.
	// +optional
	Src Address `json:"src,omitempty"`
	// Dst matches the destination address.
	// +optional
	Dst Address `json:"dst,omitempty"`
	// Not makes the rule one for all packets that do not match.
	// +optional
	Not bool `json:"not,omitempty"`
	// Prio is the place among all rules for routes: of several rules that match, the one with the
	// lowest number decides. Without it, rules are in the order of their creation.
	// +optional
	Prio RoutePriority `json:"prio,omitempty"`
	// FwMark matches the mark of the packet.
	// +optional
	FwMark Mark `json:"fwmark,omitempty"`
	// Table is main, local, default, cnf or the number of a table. The default is main.
	// +optional
	Table Table `json:"table,omitempty"`
}
