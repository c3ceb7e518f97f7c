"""Metrics of the cluster and the suite, to Zabbix."""
