package rest

import (
	"reflect"
	"unicode/utf8"
)

// The limits of what objects have are those of the CRDs (api/sdewan), whose schemas have the same
// numbers: sdewan.TestLimits compares them.

// The greatest numbers in objects. The least is 1.
const (
	MaxMetric  = 256   // of a Member, as in mwan3
	MaxWeight  = 1000  // of a Member, as in mwan3
	MaxSeconds = 86400 // of Rule.Timeout

	MaxPercent      = 100   // of Member.MaxLoss
	MaxMilliseconds = 60000 // of Member.MaxLatency and MaxJitter
)

// MaxLength is the maximum number of characters of each field that is text, or a list of texts, and
// MaxItems the maximum number of elements of each list. The fields have the names in JSON, after
// that of the list around them.
var (
	MaxLength = map[string]int{
		"cidr":                       64,
		"connections.conn_type":      64,
		"connections.if_id":          64,
		"connections.local_firewall": 64,
		"connections.mark":           64,
		"connections.mode":           64,
		"connections.name":           64,
		"dest_ip":                    64,
		"dh_group":                   64,
		"dport":                      64,
		"dst":                        64,
		"encryption_algorithm":       64,
		"force_crypto_proposal":      64,
		"fwmark":                     64,
		"gw":                         64,
		"hash_algorithm":             64,
		"index":                      64,
		"mark":                       64,
		"masq":                       64,
		"masq_allow_invalid":         64,
		"masq_dest":                  64,
		"masq_src":                   64,
		"members.max_jitter":         64,
		"members.max_latency":        64,
		"members.max_loss":           64,
		"members.metric":             64,
		"members.weight":             64,
		"mtu_fix":                    64,
		"port":                       64,
		"prio":                       64,
		"set_mark":                   64,
		"set_xmark":                  64,
		"src_dip":                    64,
		"src_ip":                     64,
		"src_mac":                    64,
		"sticky":                     64,
		"subnet":                     64,
		"table":                      64,
		"timeout":                    64,
		"type":                       64,

		"dest_port": 180,
		"src_dport": 180,
		"src_port":  180,

		"connections.local_nat":       512,
		"connections.local_sourceip":  512,
		"connections.local_subnet":    512,
		"connections.remote_sourceip": 512,
		"connections.remote_subnet":   512,

		"etra_dest": 1024,
		"extra":     1024,
		"extra_src": 1024,

		"iplist":             4096,
		"pre_shared_key":     4096,
		"local_private_cert": 128 << 10,
		"local_public_cert":  128 << 10,
		"shared_ca":          128 << 10,
	}
	MaxItems = map[string]int{
		"connections":                 16,
		"connections.crypto_proposal": 16,
		"crypto_proposal":             16,
		"icmp_type":                   64,
		"masq_dest":                   64,
		"masq_src":                    64,
		"members":                     60,
		"network":                     60,
		"subnet":                      64,
	}
)

// LengthOf returns the maximum number of characters of a field: that of names for all that are not
// in MaxLength.
func LengthOf(field string) int {
	if n, ok := MaxLength[field]; ok {
		return n
	}
	return maxName
}

// limits checks the lengths of texts and lists.
func (c *checker) limits(o Object) {
	said := map[string]bool{} // the fields of many elements have the same mistake
	walk(o, func(field, value string) string {
		n := utf8.RuneCountInString(value)
		if most := LengthOf(field); field != "name" && n > most && !said[field] {
			said[field] = true
			c.add(field, "it has %d characters: use at most %d", n, most)
		}
		return value
	})
	c.items(reflect.ValueOf(o).Elem(), "")
}

func (c *checker) items(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Slice:
		if most, ok := MaxItems[field]; ok && v.Len() > most {
			c.add(field, "it has %d elements: use at most %d", v.Len(), most)
			return
		}
		for i := range v.Len() {
			c.items(v.Index(i), field)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.items(v.Field(i), fieldName(v.Type().Field(i), field))
		}
	}
}
