"""Constants of distributions that several estimators share."""

#: Half the width of a 95 % interval of a normal variable, in standard deviations.
NORMAL_QUANTILE_95 = 1.959964
#: Median absolute deviation of a normal variable, in standard deviations.
NORMAL_MAD = 0.674490
#: 95 % quantile of the chi-squared distribution with one degree of freedom.
CHI_SQUARED_QUANTILE_95 = 3.841
